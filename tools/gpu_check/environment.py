"""Prints, as JSON, which torch this Python has, where its libraries are, and which GPUs it sees:
environment.py DEVICE LIBRARY... tells whether the system lacks one of the libraries, too."""

import ctypes
import importlib.metadata
import json
import pathlib
import platform
import sys

import torch


def library_folders():
    """torch's, and those of the nvidia packages beside it that its own libraries are linked with."""
    root = pathlib.Path(torch.__file__).resolve().parent
    folders = [root / "lib", *sorted(root.parent.glob("nvidia/*/lib"))]
    return [str(folder) for folder in folders if folder.is_dir()]


def lacks(library):
    try:
        ctypes.CDLL(library)
        return False
    except OSError:
        return True


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def devices(wanted):
    if not wanted.startswith("cuda") or not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append({"name": properties.name, "total_memory": properties.total_memory})
    return found


print(
    json.dumps(
        {
            "torch": torch.__version__,
            "git": torch.version.git_version,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in ("torchvision", "timm", "transformers")},
            "libraries": library_folders(),
            "lacks": any(map(lacks, sys.argv[2:])),
            "devices": devices(sys.argv[1]),
        }
    )
)
