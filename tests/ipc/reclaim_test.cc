// What is given back, by whom, and how soon: what users of other systems ran into (P9, P10, P15 to
// P18), and D13's times. Times are measured from events and allow for a loaded machine.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "support/audit_reader.h"
#include "support/probe.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
constexpr auto kNormal = ACL_MEM_MALLOC_NORMAL_ONLY;
// D13 says 100 ms of a machine that has nothing else to do.
constexpr int kLoaded = kSanitized ? 50 : 10;
constexpr milliseconds kAtOnce = kLoaded * milliseconds(100);

// Nothing that the broker would list for `hufu ls`.
bool nothing_listed(WireSession& observer) {
  const auto first = observer.client.ask(wire::List{.after = 0});
  return first.body && first.body->share == 0;
}

// How long it took until `done`, asked at each turn of the broker's loop.
template <class Done>
milliseconds until(Done done) {
  const auto begin = steady_clock::now();
  while (!done()) {
    if (steady_clock::now() - begin > kDeadline) return kDeadline;
  }
  return std::chrono::ceil<milliseconds>(steady_clock::now() - begin);
}

TEST(P9, ExportersKilledInTheMiddleOfItLeaveTheWholeDeviceAtOnce) {
  constexpr std::uint64_t kDevice = 64 * kMiB;
  TestBroker broker({.capacity = "64M", .devices = 1});
  WireSession observer = [&] {
    broker.start();
    return WireSession(broker.socket());
  }();
  std::vector<AclPeer> exporters;
  for (int i = 0; i < 8; ++i) {
    exporters.push_back(AclPeer::ready(broker));
    exporters.back().share(4 * kMiB, i, kAnyProcess);
    // In the middle of one more.
    exporters.back().helper.tell("malloc 2097152 2");
  }
  for (const AclPeer& exporter : exporters)
    ::kill(exporter.pid(), SIGKILL);
  const auto took = until([&] { return observer.stat().used == 0; });
  EXPECT_LE(took, kAtOnce);
  EXPECT_TRUE(nothing_listed(observer));
  for (AclPeer& exporter : exporters)
    EXPECT_EQ(exporter.helper.wait(), Ending::killed(SIGKILL));
  AclPeer next = AclPeer::ready(broker);
  const std::uint64_t all = next.allocate(kDevice - 32, kNormal);
  next.fill(all, kDevice - 32, 1);
}

TEST(P10, FiftyCrashesAndRestartsWithRoomForOneRegionAllSucceed) {
  constexpr std::uint64_t kRegion = 8 * kMiB;
  TestBroker broker({.capacity = "8M", .devices = 1});
  broker.start();
  for (int round = 0; round < rounds(50); ++round) {
    AclPeer service = AclPeer::ready(broker);
    const std::uint64_t region = service.allocate(kRegion - 32, kNormal);
    ASSERT_TRUE(service.export_key(region, kRegion - 32, kAnyProcess).ok());
    // Its supervisor starts the next as soon as it sees the death.
    ASSERT_EQ(service.kill(), Ending::killed(SIGKILL));
  }
}

TEST(P15, AProducerThatExitsFirstLeavesNothingWhenTheLastImporterCloses) {
  TestBroker broker({.devices = 1});
  broker.start();
  WireSession observer(broker.socket());
  AclPeer one = AclPeer::ready(broker);
  AclPeer two = AclPeer::ready(broker);
  std::string key;
  std::uint64_t seen = 0;
  {
    AclPeer producer = AclPeer::ready(broker);
    key = producer.share(kMiB, 42, kAnyProcess).key;
    seen = one.import(key).value();
    ASSERT_TRUE(two.import(key).ok());
  }  // It exits as programs do.
  EXPECT_EQ(one.peek(seen), 42);
  one.must("close " + key);
  EXPECT_GE(observer.stat().used, kMiB) << "the other one still has it";
  two.must("close " + key);
  EXPECT_LE(until([&] { return observer.stat().used == 0; }), kAtOnce);
  EXPECT_TRUE(nothing_listed(observer));
}

TEST(P16, AnExportThatNobodyImportsIsItsOwnersToEnd) {
  TestBroker broker({.devices = 1});
  broker.start();
  WireSession observer(broker.socket());
  AclPeer owner = AclPeer::ready(broker);
  const auto closed = owner.share(kMiB, 1, kAnyProcess);
  EXPECT_FALSE(nothing_listed(observer));
  owner.must("close " + closed.key);
  EXPECT_TRUE(nothing_listed(observer));
  EXPECT_FALSE(owner.import(closed.key).ok());
  owner.free(closed.address);

  const auto freed = owner.share(kMiB, 1, kAnyProcess);
  owner.free(freed.address);
  EXPECT_TRUE(nothing_listed(observer));
  owner.kill();
  EXPECT_LE(until([&] { return observer.stat().used == 0; }), kAtOnce);
}

TEST(P17, ImportedAndClosedManyTimesTheCountReturnsToItsStart) {
  TestBroker broker({.devices = 1});
  broker.start();
  WireSession observer(broker.socket());
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(kMiB, 1, kAnyProcess);
  importer.must(fmt::format("import-and-close {} {}", made.key, rounds(200)));
  // And nested: as many closes as opens.
  for (int i = 0; i < 20; ++i)
    importer.must("import " + made.key);
  EXPECT_EQ(observer.client.ask(wire::List{.after = 0}).body->importers, 1U);
  for (int i = 0; i < 20; ++i)
    importer.must("close " + made.key);
  EXPECT_LE(until([&] { return observer.client.ask(wire::List{.after = 0}).body->importers == 0; }),
            kAtOnce);
  exporter.free(made.address);
  expect_one(broker.records(), {.type = audit::Type::kFreeClaimed, .refs_after = 0});
  EXPECT_TRUE(nothing_listed(observer));
}

TEST(P18, AClientThatDiesBeforeItsFirstExportLeavesNoGhost) {
  TestBroker broker({.devices = 1});
  broker.start();
  WireSession observer(broker.socket());
  AclPeer client = AclPeer::ready(broker);
  client.allocate(16 * kMiB, kNormal);
  EXPECT_GE(observer.stat().used, 16 * kMiB);
  ASSERT_EQ(client.kill(), Ending::killed(SIGKILL));
  EXPECT_LE(until([&] { return observer.stat().used == 0; }), kAtOnce);
  EXPECT_TRUE(nothing_listed(observer));
}

// D13: the counts and the keys at once, the pages as fast as the kernel frees them.
TEST(Reclaim, OfADeadExporterIsAtOnceForCountsAndKeysAndSoonForPages) {
  constexpr std::uint64_t kSize = kSanitized ? 32 * kMiB : 192 * kMiB;
  TestBroker broker({.devices = 1});
  broker.start();
  const pid_t pid = broker.pid();
  WireSession observer(broker.socket());
  AclPeer exporter = AclPeer::ready(broker);
  const std::uint64_t address = exporter.allocate(kSize, kNormal);
  exporter.fill(address, kSize, 42);
  const std::string key = exporter.export_key(address, kSize, kAnyProcess).words.at(0);

  const auto killed = steady_clock::now();
  ::kill(exporter.pid(), SIGKILL);
  // The kernel tears the address space down first; the broker is told when the process is dead.
  ASSERT_EQ(exporter.helper.wait(), Ending::killed(SIGKILL));
  until([&] { return observer.stat().used == 0; });
  EXPECT_EQ(observer.import(key).reason(), Reason::kExportEnded);
  EXPECT_LE(std::chrono::ceil<milliseconds>(steady_clock::now() - killed), kAtOnce);

  until([&] {
    observer.stat();
    const auto open = descriptors_of(pid);
    return std::ranges::none_of(open, [](const std::string& to) {
      return to.starts_with("/memfd:hufu (");  // A block; the broker's own memory has other names.
    });
  });
  const auto pages = milliseconds(250) * static_cast<int>(kSize / kMiB) / 1024;
  EXPECT_LE(std::chrono::ceil<milliseconds>(steady_clock::now() - killed),
            kAtOnce + kLoaded * pages);
}

}  // namespace
}  // namespace hufu::test
