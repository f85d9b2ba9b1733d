// Virtual memory management between processes: shareable handles, whose memory outlives whom, and
// that nothing of it stays.

#include <signal.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "support/audit_reader.h"
#include "support/probe.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kUnit = 2 * kMiB;
constexpr int kListed = 0;
constexpr int kAnyProcess = ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
constexpr int kRefused = 507899;
constexpr int kNoHandle = 107017;
constexpr int kFabric = 2;

// Memory at an address of its own.
struct Mapped {
  std::uint64_t address;
  std::uint64_t handle;
};

Mapped map(AclPeer& peer, std::uint64_t handle, std::uint64_t size = kUnit) {
  const std::uint64_t address = peer.must(fmt::format("vmm-reserve {}", size)).value();
  peer.must(fmt::format("vmm-map {} {} {}", address, size, handle));
  return {.address = address, .handle = handle};
}

Mapped make(AclPeer& peer, std::uint64_t size = kUnit, int value = 0) {
  const Mapped made = map(peer, peer.must(fmt::format("vmm-malloc {}", size)).value(), size);
  peer.fill(made.address, size, value);
  return made;
}

void unmap(AclPeer& peer, const Mapped& mapped) {
  peer.must(fmt::format("vmm-unmap {}", mapped.address));
  peer.must(fmt::format("vmm-release {}", mapped.address));
}

std::string shareable(AclPeer& peer, const Mapped& mapped, int flags = kAnyProcess) {
  return peer.must(fmt::format("vmm-export {} {}", mapped.handle, flags)).words.at(0);
}

std::string fabric(AclPeer& peer, const Mapped& mapped, int flags = kAnyProcess) {
  return peer.must(fmt::format("vmm-export {} {} {}", mapped.handle, flags, kFabric)).words.at(0);
}

// Asked at each turn of the broker's loop.
template <class Done>
bool comes_true(Done done) {
  const auto end = steady_clock::now() + kDeadline;
  while (!done()) {
    if (steady_clock::now() > end) return false;
  }
  return true;
}

// More than the machine's reserved huge pages together: so it is made of others.
const std::uint64_t kUnreserved = [] {
  std::uint64_t pages = 0;
  std::ifstream("/proc/sys/vm/nr_hugepages") >> pages;
  return (pages + 1) * kUnit;
}();

int memory_files_of(pid_t pid) {
  int files = 0;
  for (const std::string& file : descriptors_of(pid))
    files += file.starts_with("/memfd:hufu (") ? 1 : 0;
  return files;
}

class Vmm : public testing::Test {
 protected:
  Vmm() {
    broker_.start();
    observer_.emplace(broker_.socket());
  }
  AclPeer peer() { return AclPeer::ready(broker_); }
  std::uint64_t used() { return observer_->stat().used; }
  bool nothing_used() {
    return comes_true([&] { return used() == 0; });
  }

  TestBroker broker_;
  std::optional<WireSession> observer_;
};

class S16 : public Vmm {};
class P44 : public Vmm {};
class P45 : public Vmm {};

TEST_F(Vmm, AnImporterSeesTheSamePages) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const Mapped made = make(exporter, 2 * kUnit, 5);
  const std::string token = shareable(exporter, made);
  const std::uint64_t handle = importer.must("vmm-import " + token + " 0").value();
  const Mapped seen = map(importer, handle, 2 * kUnit);
  EXPECT_EQ(importer.peek(seen.address + 2 * kUnit - 1), 5);
  importer.fill(seen.address, 2 * kUnit, 6);
  EXPECT_EQ(exporter.peek(made.address + 1), 6);
  expect_same_memory(exporter.pid(), made.address, importer.pid(), seen.address, 2 * kUnit);
  EXPECT_EQ(used(), 2 * kUnit);  // Once, however many see it.
  const auto range = importer.must(fmt::format("range {}", seen.address + 7));
  EXPECT_EQ(range.value(0), seen.address);
  EXPECT_EQ(range.value(1), 2 * kUnit);
}

TEST_F(Vmm, NoDescriptorIsKeptForAHandle) {
  if (kUnreserved > 200 * kMiB) GTEST_SKIP() << "the machine reserved too many huge pages";
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const Mapped made = make(exporter, kUnreserved, 5);
  const std::string token = shareable(exporter, made);
  const auto handle = importer.must("vmm-import " + token + " 0").value();
  EXPECT_EQ(memory_files_of(exporter.pid()), 0);
  EXPECT_EQ(memory_files_of(importer.pid()), 0);
  unmap(exporter, made);
  const Mapped seen = map(importer, handle, kUnreserved);
  EXPECT_EQ(importer.peek(seen.address + kUnreserved - 1), 5);
  // Nor does it count as this process's while it is mapped nowhere.
  EXPECT_LT(status_kib(exporter.pid(), "RssShmem"), kUnreserved / kKiB / 2);
  EXPECT_EQ(smaps_kib(importer.pid(), seen.address, "ShmemPmdMapped"),
            smaps_kib(importer.pid(), seen.address, "Rss"));
}

TEST_F(Vmm, AFabricHandleDoesWhatATokenDoes) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const Mapped made = make(exporter, kUnit, 5);
  const std::string handle = fabric(exporter, made, kListed);
  EXPECT_EQ(importer.run("vmm-import-v2 " + handle).code, kRefused);
  exporter.must(fmt::format("vmm-list {} {}", handle, importer.pid()));
  const Mapped seen = map(importer, importer.must("vmm-import-v2 " + handle).value());
  EXPECT_EQ(importer.peek(seen.address), 5);
  // Every bit of it counts.
  for (const std::size_t digit : {0U, 8U, 15U, 20U, 143U, 144U, 255U}) {
    std::string other = handle;
    other[digit] = other[digit] == '0' ? '1' : '0';
    EXPECT_EQ(importer.run("vmm-import-v2 " + other).code, kNoHandle) << digit;
  }
}

TEST_F(Vmm, PropertiesAreKnownOfTheSecondInterfacesImportsOnly) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const std::string token = shareable(exporter, make(exporter));
  const auto first = importer.must("vmm-import " + token + " 1").value();
  const auto second = importer.must("vmm-import-v2 " + token).value();
  EXPECT_EQ(importer.run(fmt::format("vmm-properties {}", first)).code, 207000);
  const auto properties = importer.must(fmt::format("vmm-properties {}", second));
  EXPECT_EQ(properties.value(0), static_cast<std::uint64_t>(ACL_MEM_HUGE));
  EXPECT_EQ(properties.value(1), 0U);
  // It counts as the device's that the importer named.
  const Mapped seen = map(importer, first);
  EXPECT_EQ(importer.must(fmt::format("attributes {}", seen.address)).value(1), 1U);
}

TEST_F(Vmm, OnlyWhoIsListedImportsAndTheListIsTheExporters) {
  AclPeer exporter = peer();
  AclPeer listed = peer();
  AclPeer other = peer();
  const std::string token = shareable(exporter, make(exporter), kListed);
  const auto refused = listed.run("vmm-import " + token + " 0");
  EXPECT_EQ(refused.code, kRefused);
  EXPECT_NE(refused.text.find("aclrtMemSetPidToShareableHandle"), std::string::npos);
  EXPECT_EQ(other.run(fmt::format("vmm-list {} {}", token, other.pid())).code, kRefused);
  EXPECT_EQ(exporter.run("vmm-list " + token + " 0 0").code, kRefused);
  EXPECT_EQ(exporter.run(fmt::format("vmm-list 12345 {}", listed.pid())).code, kNoHandle);
  exporter.must(fmt::format("vmm-list {} 0 {}", token, listed.pid()));
  EXPECT_TRUE(listed.run("vmm-import " + token + " 0").ok());
  EXPECT_EQ(other.run("vmm-import " + token + " 0").code, kRefused);
  const std::string open = shareable(exporter, make(exporter), kAnyProcess);
  EXPECT_EQ(exporter.run(fmt::format("vmm-list {} {}", open, listed.pid())).code, 207006);
}

TEST_F(Vmm, AGuessedHandleIsNone) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const std::string token = shareable(exporter, make(exporter));
  const std::uint64_t right = std::stoull(token);
  for (const std::uint64_t guess :
       {std::uint64_t{0}, std::uint64_t{1}, right ^ 1U, right + 1, ~std::uint64_t{0}})
    EXPECT_EQ(importer.run(fmt::format("vmm-import {} 0", guess)).code, kNoHandle) << guess;
  EXPECT_EQ(importer.run(fmt::format("vmm-import {} 2", token)).code, 107001);
  EXPECT_EQ(importer.run(fmt::format("vmm-import {} -1", token)).code, 107001);
}

TEST_F(S16, AHandleHasOneShareableHandleAndItsExporterDoesNotImportIt) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const Mapped made = make(exporter);
  const std::string token = shareable(exporter, made);
  EXPECT_EQ(exporter.run(fmt::format("vmm-export {} 0", made.handle)).code, kRefused);
  EXPECT_EQ(exporter.run(fmt::format("vmm-export {} 1 {}", made.handle, kFabric)).code, kRefused);
  EXPECT_EQ(exporter.run("vmm-import " + token + " 0").code, kRefused);
  EXPECT_EQ(exporter.run("vmm-import-v2 " + token).code, kRefused);
  const auto imported = importer.must("vmm-import " + token + " 0").value();
  EXPECT_EQ(importer.run(fmt::format("vmm-export {} 1", imported)).code, kRefused);
  EXPECT_EQ(exporter.run("vmm-export 4711 1").code, kNoHandle);
}

TEST_F(Vmm, FreeingTheHandleEndsItsShareableHandleAndNoImport) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  AclPeer late = peer();
  const Mapped made = make(exporter, kUnit, 5);
  const std::string token = shareable(exporter, made);
  const Mapped seen = map(importer, importer.must("vmm-import " + token + " 0").value());
  // Still mapped in the exporter, and retained once.
  exporter.must(fmt::format("vmm-retain {}", made.address));
  exporter.must(fmt::format("vmm-free {}", made.handle));
  EXPECT_TRUE(late.run("vmm-import " + token + " 0").ok());
  exporter.must(fmt::format("vmm-free {}", made.handle));
  EXPECT_EQ(late.run("vmm-import " + token + " 0").code, kNoHandle);
  EXPECT_EQ(exporter.peek(made.address), 5);
  EXPECT_EQ(importer.peek(seen.address), 5);
  unmap(exporter, made);
  EXPECT_EQ(importer.peek(seen.address), 5);
  EXPECT_EQ(used(), kUnit);
  importer.must(fmt::format("vmm-free {}", seen.handle));
  EXPECT_EQ(importer.peek(seen.address), 5);
  unmap(importer, seen);
  ASSERT_EQ(late.kill(), Ending::killed(SIGKILL));
  EXPECT_TRUE(nothing_used());
}

TEST_F(Vmm, AKilledExporterTakesNoImportAndItsShareableHandleDiesWithIt) {
  AclPeer importer = peer();
  AclPeer late = peer();
  AclPeer exporter = peer();
  const Mapped made = make(exporter, kUnit, 5);
  const std::string token = shareable(exporter, made);
  const std::uint64_t handle = importer.must("vmm-import " + token + " 0").value();
  ASSERT_EQ(exporter.kill(), Ending::killed(SIGKILL));
  ASSERT_TRUE(comes_true([&] { return late.run("vmm-import " + token + " 0").code == kNoHandle; }));
  // Not even mapped when it died.
  const Mapped seen = map(importer, handle);
  EXPECT_EQ(importer.peek(seen.address + kUnit - 1), 5);
  EXPECT_EQ(used(), kUnit);
  importer.must(fmt::format("vmm-unmap {}", seen.address));
  EXPECT_EQ(used(), kUnit);
  importer.must(fmt::format("vmm-free {}", handle));
  EXPECT_TRUE(nothing_used());
}

TEST_F(Vmm, WhatOnlyQueuedWorkKeepsIsNobodysToImport) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  for (const bool freed_first : {false, true}) {
    const Mapped made = make(exporter, 2 * kUnit, 5);
    const std::string token = shareable(exporter, made);
    const std::string key = exporter.export_key(made.address, 2 * kUnit, kAnyProcess).words.at(0);
    exporter.must("vmm-queue");
    if (freed_first) exporter.must(fmt::format("vmm-free {}", made.handle));
    exporter.must(fmt::format("vmm-unmap {}", made.address));
    if (!freed_first) exporter.must(fmt::format("vmm-free {}", made.handle));
    exporter.must(fmt::format("vmm-release {}", made.address));
    EXPECT_EQ(importer.run("vmm-import " + token + " 0").code, kNoHandle);
    EXPECT_EQ(importer.import(key).code, kRefused);
    EXPECT_EQ(used(), 2 * kUnit);
    exporter.must("vmm-let-go");
    EXPECT_TRUE(nothing_used());
  }
}

TEST_F(Vmm, TwoImportsOfOneProcessAreIndependent) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const Mapped made = make(exporter, kUnit, 5);
  const std::string token = shareable(exporter, made);
  const auto one = importer.must("vmm-import " + token + " 0").value();
  const auto two = importer.must("vmm-import " + token + " 0").value();
  EXPECT_NE(one, two);
  const Mapped seen = map(importer, two);
  importer.must(fmt::format("vmm-free {}", one));
  EXPECT_EQ(importer.run(fmt::format("vmm-free {}", one)).code, kNoHandle);
  EXPECT_EQ(importer.peek(seen.address), 5);
  exporter.must(fmt::format("vmm-free {}", made.handle));
  unmap(exporter, made);
  importer.must(fmt::format("vmm-free {}", two));
  unmap(importer, seen);
  EXPECT_TRUE(nothing_used());
}

TEST_F(Vmm, AnImporterThatIsKilledIsCountedOut) {
  AclPeer exporter = peer();
  const Mapped made = make(exporter);
  const std::string token = shareable(exporter, made);
  {
    AclPeer importer = peer();
    map(importer, importer.must("vmm-import " + token + " 0").value());
    ASSERT_EQ(importer.kill(), Ending::killed(SIGKILL));
  }
  exporter.must(fmt::format("vmm-free {}", made.handle));
  unmap(exporter, made);
  EXPECT_TRUE(nothing_used());
}

TEST_F(Vmm, EveryGrantIsARecord) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const std::string token = shareable(exporter, make(exporter), kListed);
  (void)importer.run("vmm-import " + token + " 0");
  exporter.must(fmt::format("vmm-list {} {}", token, importer.pid()));
  const auto handle = importer.must("vmm-import " + token + " 0").value();
  importer.must(fmt::format("vmm-free {}", handle));
  ASSERT_TRUE(comes_true(
      [&] { return count(broker_.records(), {.type = audit::Type::kCloseClaimed}) == 1; }));
  const auto records = broker_.records();
  expect_one(records, {.type = audit::Type::kExport, .pid = exporter.pid(), .size = kUnit});
  expect_one(records, {.type = audit::Type::kImport,
                       .pid = importer.pid(),
                       .owner_pid = exporter.pid(),
                       .size = kUnit});
  expect_one(records, {.type = audit::Type::kDeny,
                       .asked = audit::Type::kImport,
                       .reason = Reason::kNotListed,
                       .pid = importer.pid()});
}

TEST_F(Vmm, HandlesOfABrokerThatIsGoneAreNone) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const Mapped made = make(exporter, kUnit, 5);
  const std::string token = shareable(exporter, made);
  const Mapped seen = map(importer, importer.must("vmm-import " + token + " 0").value());
  broker_.kill();
  broker_.start();
  EXPECT_EQ(importer.run("vmm-import " + token + " 0").code, kNoHandle);
  EXPECT_EQ(importer.peek(seen.address), 5);
  importer.must(fmt::format("vmm-free {}", seen.handle));
  unmap(importer, seen);
  exporter.must(fmt::format("vmm-free {}", made.handle));
  EXPECT_EQ(exporter.peek(made.address), 5);
  unmap(exporter, made);
}

TEST_F(P44, AThousandSleepsAndWakesAtOneAddressLeaveNothingEachTime) {
  AclPeer worker = peer();
  for (const std::uint64_t size : {2 * kUnit, kUnreserved}) {
    if (size > 200 * kMiB) continue;
    const std::uint64_t address = worker.must(fmt::format("vmm-reserve {}", size)).value();
    worker.must(fmt::format("vmm-sleep-and-wake {} {} 1", address, size));  // First needs.
    const int times = size == 2 * kUnit ? rounds(1000) / 10 : 1;
    for (int i = 0; i < (size == 2 * kUnit ? 10 : 3); ++i) {
      worker.must(fmt::format("vmm-sleep-and-wake {} {} {}", address, size, times));
      ASSERT_EQ(used(), 0U);
      ASSERT_EQ(smaps_kib(worker.pid(), address, "Rss"), 0U);
    }
    worker.must(fmt::format("vmm-release {}", address));
  }
  // The pages too, and not only the books of them: nobody has their files any more.
  EXPECT_TRUE(comes_true([&] { return memory_files_of(broker_.pid()) == 0; }));
}

TEST_F(P45, WhatIsDoneTwiceIsAnErrorWithTheStateIntactInBothProcesses) {
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const Mapped made = make(exporter, kUnit, 5);
  const std::string token = shareable(exporter, made);
  const Mapped seen = map(importer, importer.must("vmm-import " + token + " 0").value());
  for (AclPeer* each : {&exporter, &importer}) {
    const Mapped& mine = each == &exporter ? made : seen;
    EXPECT_EQ(each->run(fmt::format("vmm-release {}", mine.address)).code, kRefused);
    each->must(fmt::format("vmm-free {}", mine.handle));
    EXPECT_EQ(each->run(fmt::format("vmm-free {}", mine.handle)).code, kNoHandle);
    EXPECT_EQ(each->peek(mine.address), 5);
    each->must(fmt::format("vmm-unmap {}", mine.address));
    EXPECT_EQ(each->run(fmt::format("vmm-unmap {}", mine.address)).code, kRefused);
    each->must(fmt::format("vmm-release {}", mine.address));
    EXPECT_EQ(each->run(fmt::format("vmm-release {}", mine.address)).code, 107000);
  }
  EXPECT_TRUE(nothing_used());
}

TEST_F(Vmm, BothOrdersOfFreeingLeaveNothing) {
  AclPeer worker = peer();
  for (const bool address_first : {false, true}) {
    const Mapped made = make(worker, 2 * kUnit);  // Not kept as a spare.
    worker.must(fmt::format("vmm-retain {}", made.address));
    worker.must(fmt::format("vmm-free {}", made.handle));
    worker.must(fmt::format("vmm-unmap {}", made.address));
    const auto release = fmt::format("vmm-release {}", made.address);
    if (address_first) worker.must(release);
    worker.must(fmt::format("vmm-free {}", made.handle));
    if (!address_first) worker.must(release);
    EXPECT_EQ(used(), 0U);
  }
}

TEST_F(Vmm, WithoutMapEntriesMappingIsAnErrorWithTheRemedyAndNothingIsLost) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the program that has no map entry for it";
  std::uint64_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit > 200000) GTEST_SKIP() << "vm.max_map_count is " << limit;
  AclPeer worker = peer();
  const auto refused = worker.run(fmt::format("vmm-map-until-refused {}", limit));
  EXPECT_EQ(refused.code, 207001);
  EXPECT_NE(refused.text.find("vm.max_map_count"), std::string::npos) << refused.text;
  worker.kill();
}

}  // namespace
}  // namespace hufu::test
