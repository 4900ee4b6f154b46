// Preloaded, it has LibTorch say that it is another version.
#include <string>

namespace at {

std::string show_config();

std::string show_config() { return "  - Build settings: TORCH_VERSION=2.99.0, USE_CUDA=OFF, "; }

}  // namespace at
