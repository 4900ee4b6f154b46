#pragma once

#include <cstdint>

namespace remat::testing {

/// A device without kernels (PrivateUse1): work is queued by advance() and over at the next
/// synchronisation; events hold the queue's time. Registered for a test that links it.
struct FakeDevice {
  static constexpr double kTick = 1e-3;  ///< seconds

  /// Queues so many ticks of work.
  static void advance(int64_t ticks);
  static int64_t queued();
  /// How often anything waited for the device so far.
  static int64_t synchronisations();
  /// Events that were made and not destroyed.
  static int64_t liveEvents();
};

}  // namespace remat::testing
