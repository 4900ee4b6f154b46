"""Compares what two runs of train_side.py gave, by the rules that `remat-opt verify` has."""

import torch

TOLERANCE = 1e-5  # relative to the tensor's largest value
GRADIENT_SHARE = 0.01  # or to this share of the largest gradient of all, where that is more
ORDER = ("bitwise", "close", "different")


def same_bits(a, b):
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def largest(tensor):
    return tensor.double().abs().max().item() if tensor is not None and tensor.numel() else 0.0


def compare_tensors(a, b, smallest_scale):
    """The match and the largest difference relative to the tensor's largest value."""
    if a is None and b is None:
        return "bitwise", 0.0
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return "different", float("inf")
    if a.numel() == 0 or same_bits(a, b):
        return "bitwise", 0.0
    difference, scale = largest(a.double() - b.double()), largest(a)
    # NaN compares false.
    close = difference <= TOLERANCE * max(scale, smallest_scale)
    return "close" if close else "different", difference / scale if scale else difference


def compare_steps(original, optimized):
    """Per kind (outputs, gradients, buffers, next_draw) the worst match over all steps; `first` names what came out
    worst first."""
    result = {kind: "bitwise" for kind in original[0]}
    result.update(max_difference=0.0, first=None)
    worst = "bitwise"
    for number, (left, right) in enumerate(zip(original, optimized, strict=True), 1):
        scale = GRADIENT_SHARE * max(map(largest, left["gradients"].values()), default=0.0)
        for kind in left:
            if left[kind].keys() != right[kind].keys():
                result.update({kind: "different", "first": f"step {number}, {kind}: other names"})
                worst = "different"
                continue
            for name, tensor in left[kind].items():
                match, difference = compare_tensors(tensor, right[kind][name], scale if kind == "gradients" else 0.0)
                result["max_difference"] = max(result["max_difference"], difference)
                result[kind] = max(result[kind], match, key=ORDER.index)
                if ORDER.index(match) > ORDER.index(worst):
                    worst, result["first"] = match, f"step {number}, {kind}: {name}"
    result["worst"] = worst
    return result
