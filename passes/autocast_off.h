#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>

namespace remat {

/// The caller's autocast of a device type, off while this lives: a recorded step turns its own on
/// by itself, for the forward alone.
class AutocastOff {
 public:
  explicit AutocastOff(c10::DeviceType device)
      : device_(device), enabled_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~AutocastOff() { at::autocast::set_autocast_enabled(device_, enabled_); }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;
  bool wasEnabled() const { return enabled_; }

 private:
  c10::DeviceType device_;
  bool enabled_;
};

}  // namespace remat
