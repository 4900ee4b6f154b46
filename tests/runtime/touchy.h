#pragma once

namespace remat::runtime::test {

/// `torch.touchy(x)` is sigmoid(x), and throws while it is made to: it stands for whatever fails in
/// a replay.
void makeTouchyThrow(bool on);

}  // namespace remat::runtime::test
