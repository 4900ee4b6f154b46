# LibTorch's targets where it has CUDA and this machine has no CUDA toolkit: its own CMake files ask for one, programs
# that only link LibTorch don't need it. Defines nothing where LibTorch isn't found.

unset(_remat_torch_config CACHE)
find_file(_remat_torch_config TorchConfig.cmake
  HINTS ${Torch_DIR} $ENV{Torch_DIR} ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH}
  PATH_SUFFIXES Torch share/cmake/Torch lib/cmake/Torch
  NO_DEFAULT_PATH)
if(_remat_torch_config)
  get_filename_component(Torch_DIR "${_remat_torch_config}" DIRECTORY)
  get_filename_component(_remat_root "${Torch_DIR}/../../.." ABSOLUTE)
  foreach(_remat_library IN LISTS _remat_needed)
    if(EXISTS "${_remat_root}/lib/lib${_remat_library}.so")
      add_library(${_remat_library} SHARED IMPORTED)
      set_target_properties(${_remat_library} PROPERTIES
        IMPORTED_LOCATION "${_remat_root}/lib/lib${_remat_library}.so"
        IMPORTED_SONAME "lib${_remat_library}.so")
    endif()
  endforeach()
  set_target_properties(torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_remat_root}/include;${_remat_root}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "torch_cpu;c10")
endif()
unset(_remat_torch_config CACHE)
