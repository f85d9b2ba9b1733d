// Keys for memory that the heap does not own: what a program mapped itself, and what it took from
// pools; and none for what belongs to another process.

#include <string>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "support/audit_reader.h"
#include "support/probe.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kUnit = 2 * kMiB;
constexpr int kRefused = 507899;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;

class WithABroker : public ::testing::Test {
 protected:
  TestBroker broker_;
};
class P43 : public WithABroker {};
class P47 : public WithABroker {};
class AddressRanges : public WithABroker {};

// P47: who wants to pass on what he imported is refused, and the record says whose it is and by
// which key it came.
TEST_F(P47, NobodyPassesOnWhatBelongsToAnother) {
  AclPeer owner = AclPeer::ready(broker_);
  AclPeer between = AclPeer::ready(broker_);
  const AclPeer::Export made = owner.share(kUnit, 1, kAnyProcess);
  const std::uint64_t imported = between.must("import " + made.key).value();

  const auto passed_on = between.export_key(imported, kUnit, kAnyProcess);
  EXPECT_EQ(passed_on.code, kRefused);
  EXPECT_NE(passed_on.text.find("ask its owner"), std::string::npos) << passed_on.text;

  between.must("meminfo");  // Answered behind the report, on the same socket.
  const auto log = broker_.records();
  const auto exported = expect_one(log, {.type = Type::kExport, .pid = owner.pid()});
  const auto refused = expect_one(log, {.asked = Type::kExport, .reason = Reason::kImportedMemory});
  EXPECT_EQ(refused.actor.pid, static_cast<std::uint32_t>(between.pid()));
  EXPECT_EQ(refused.owner.pid, static_cast<std::uint32_t>(owner.pid()));
  EXPECT_EQ(refused.share_id, exported.share_id);
  EXPECT_EQ(refused.key_id, exported.key_id);
}

// Physical memory of SIZE bytes, mapped at an address of its own and filled.
struct Mapped {
  std::uint64_t address;
  std::uint64_t handle;
};
Mapped map(AclPeer& peer, std::uint64_t handle, std::uint64_t size) {
  const std::uint64_t address = peer.must(fmt::format("vmm-reserve {}", size)).value();
  peer.must(fmt::format("vmm-map {} {} {}", address, size, handle));
  return {.address = address, .handle = handle};
}
Mapped make(AclPeer& peer, std::uint64_t size, int value) {
  const Mapped made = map(peer, peer.must(fmt::format("vmm-malloc {}", size)).value(), size);
  peer.fill(made.address, size, value);
  return made;
}

// A pool of its own, and what is taken from it.
struct APool {
  AclPeer& peer;
  std::uint64_t pool = peer.must(fmt::format("pool-create {}", 16 * kUnit)).value();

  std::uint64_t take(std::uint64_t size) const {
    return peer.must(fmt::format("pool-malloc {} {}", pool, size)).value();
  }
};

TEST_F(P43, MappedMemoryHasAKeyThatLivesAsLongAsItsPages) {
  AclPeer owner = AclPeer::ready(broker_);
  AclPeer importer = AclPeer::ready(broker_);
  const Mapped made = make(owner, 2 * kUnit, 7);
  owner.fill(made.address + kUnit, kUnit, 8);
  const auto whole = owner.export_key(made.address, 2 * kUnit, kAnyProcess);
  const auto part = owner.export_key(made.address + kUnit, kUnit, kAnyProcess);
  ASSERT_TRUE(whole.ok() && part.ok()) << whole.text << part.text;

  const std::uint64_t all = importer.must("import " + whole.words.at(0)).value();
  EXPECT_EQ(importer.peek(all), 7);
  EXPECT_EQ(importer.peek(all + kUnit), 8);
  expect_same_memory(owner.pid(), made.address, importer.pid(), all, 2 * kUnit);
  const std::uint64_t second = importer.must("import " + part.words.at(0)).value();
  EXPECT_EQ(importer.peek(second), 8) << "the second half, and it alone";
  EXPECT_EQ(importer.must(fmt::format("range {}", second)).value(1), kUnit);

  // Of the pages and not of the address: unmapped they are shared still.
  owner.must(fmt::format("vmm-unmap {}", made.address));
  importer.must("close " + part.words.at(0));
  EXPECT_EQ(importer.peek(importer.must("import " + part.words.at(0)).value()), 8);

  // With the last of it the keys end, and who has it keeps it.
  owner.must(fmt::format("vmm-free {}", made.handle));
  importer.must("close " + part.words.at(0));
  EXPECT_EQ(importer.import(part.words.at(0)).code, kRefused);
  EXPECT_EQ(importer.import(whole.words.at(0)).code, kRefused);
  EXPECT_EQ(importer.peek(all), 7);
  importer.must("close " + whole.words.at(0));
  EXPECT_EQ(owner.used(), 0U);
}

TEST_F(P43, AMappedRangeIsSharedInWholePages) {
  AclPeer owner = AclPeer::ready(broker_);
  const Mapped made = make(owner, 2 * kUnit, 1);
  const auto inside = owner.export_key(made.address + 4096, kUnit, kAnyProcess);
  EXPECT_EQ(inside.code, kRefused);
  EXPECT_NE(inside.text.find("does not start a 2 MiB page"), std::string::npos) << inside.text;
  EXPECT_EQ(owner.export_key(made.address + kUnit, 2 * kUnit, kAnyProcess).code, kRefused);
  expect_one(broker_.records(), {.asked = Type::kExport, .reason = Reason::kNotAligned});
  expect_one(broker_.records(), {.asked = Type::kExport, .reason = Reason::kOutOfRange});
}

TEST_F(P43, StrictlyThereIsNoKeyButTheCallThatSharesIt) {
  broker_.start();
  Environment environment = broker_.environment();
  environment.emplace_back("HUFU_STRICT", "cann");
  AclPeer owner(Helper("acl", {.environment = environment}));
  owner.must("device 0");
  const Mapped made = make(owner, kUnit, 1);
  const auto refused = owner.export_key(made.address, kUnit, kAnyProcess);
  EXPECT_EQ(refused.code, kRefused);
  EXPECT_NE(refused.text.find("aclrtMemExportToShareableHandle"), std::string::npos)
      << refused.text;

  const auto of_a_pool = owner.export_key(APool{owner}.take(kUnit), kUnit, kAnyProcess);
  EXPECT_EQ(of_a_pool.code, kRefused);
  EXPECT_NE(of_a_pool.text.find("aclrtMalloc"), std::string::npos) << of_a_pool.text;
}

TEST_F(P43, AnAllocationOfAPoolHasAKeyThatEndsWithIt) {
  AclPeer owner = AclPeer::ready(broker_);
  AclPeer importer = AclPeer::ready(broker_);
  const APool pool{owner};
  constexpr std::uint64_t kSize = 12 * kKiB;
  const std::uint64_t before = pool.take(4096);
  const std::uint64_t shared = pool.take(kSize);
  const std::uint64_t behind = pool.take(4096);
  owner.fill(before, 4096, 1);
  owner.fill(shared, kSize, 2);
  owner.fill(behind, 4096, 3);
  const auto key = owner.export_key(shared, kSize, kAnyProcess);
  ASSERT_TRUE(key.ok()) << key.text;
  const auto other = owner.export_key(behind, 4096, kAnyProcess);
  const std::uint64_t imported = importer.must("import " + key.words.at(0)).value();
  EXPECT_EQ(importer.must(fmt::format("range {}", imported)).value(1), kSize);
  EXPECT_EQ(importer.must(fmt::format("all-equal {} {} 2", imported, kSize)).words.at(0), "yes");
  expect_same_memory(owner.pid(), shared, importer.pid(), imported, kSize);

  // Who has it keeps it: its place in the pool is nobody else's from now on.
  owner.free(shared);
  AclPeer late = AclPeer::ready(broker_);
  EXPECT_EQ(late.import(key.words.at(0)).code, kRefused);
  EXPECT_TRUE(late.import(other.words.at(0)).ok()) << "the other allocation lives";
  for (int i = 0; i < 64; ++i)
    owner.fill(pool.take(kSize), kSize, 9);
  EXPECT_EQ(importer.must(fmt::format("all-equal {} {} 2", imported, kSize)).words.at(0), "yes");
}

TEST_F(P43, APageOfAPoolThatHoldsTwoAllocationsHasNoKey) {
  AclPeer owner = AclPeer::ready(broker_);
  const APool pool{owner};
  const std::uint64_t first = pool.take(4096 + 64);
  const std::uint64_t second = pool.take(8192);
  EXPECT_TRUE(owner.export_key(first, 4096, kAnyProcess).ok()) << "its first page is its own";
  for (const auto& refused : {owner.export_key(first, 4096 + 64, kAnyProcess),
                              owner.export_key(second, 4096, kAnyProcess)}) {
    EXPECT_EQ(refused.code, kRefused);
    EXPECT_NE(refused.text.find("aclrtMemPoolExportToShareableHandle"), std::string::npos)
        << refused.text;
  }
  owner.must("meminfo");
  EXPECT_EQ(count(broker_.records(), {.asked = Type::kExport, .reason = Reason::kNotAligned}), 2U);
}

TEST_F(P47, NorWhatHeMappedOfAnothers) {
  AclPeer owner = AclPeer::ready(broker_);
  AclPeer between = AclPeer::ready(broker_);
  const Mapped made = make(owner, kUnit, 1);
  const auto token = owner.must(fmt::format("vmm-export {} {}", made.handle, 1)).words.at(0);
  const std::uint64_t handle = between.must(fmt::format("vmm-import {} 0", token)).value();
  const Mapped mapped = map(between, handle, kUnit);
  EXPECT_EQ(between.peek(mapped.address), 1);
  EXPECT_EQ(between.export_key(mapped.address, kUnit, kAnyProcess).code, kRefused);
  EXPECT_EQ(between.run(fmt::format("vmm-export {} 1", handle)).code, kRefused);

  between.must("meminfo");
  const auto log = broker_.records();
  const auto exported = expect_one(log, {.type = Type::kExport, .pid = owner.pid()});
  std::size_t refusals = 0;
  for (const audit::Record& record : log) {
    if (record.reason != Reason::kImportedMemory) continue;
    ++refusals;
    EXPECT_EQ(record.actor.pid, static_cast<std::uint32_t>(between.pid()));
    EXPECT_EQ(record.owner.pid, static_cast<std::uint32_t>(owner.pid()));
    EXPECT_EQ(record.share_id, exported.share_id);
  }
  EXPECT_EQ(refusals, 2U);
}

TEST_F(AddressRanges, OfAPoolIsTheAllocation) {
  AclPeer owner = AclPeer::ready(broker_);
  const APool pool{owner};
  pool.take(640);
  const std::uint64_t taken = pool.take(1000);
  const auto range = owner.must(fmt::format("range {}", taken + 999));
  EXPECT_EQ(range.value(0), taken);
  EXPECT_EQ(range.value(1), 1024U) << "rounded to cuts of 64 bytes";
}

TEST_F(AddressRanges, OfWhatIsMappedIsTheMapping) {
  AclPeer owner = AclPeer::ready(broker_);
  const std::uint64_t handle = owner.must(fmt::format("vmm-malloc {}", kUnit)).value();
  const std::uint64_t reserved = owner.must(fmt::format("vmm-reserve {}", 4 * kUnit)).value();
  owner.must(fmt::format("vmm-map {} {} {}", reserved + kUnit, kUnit, handle));
  for (const std::uint64_t inside : {std::uint64_t{0}, kUnit / 2, kUnit - 1}) {
    const auto range = owner.must(fmt::format("range {}", reserved + kUnit + inside));
    EXPECT_EQ(range.value(0), reserved + kUnit);
    EXPECT_EQ(range.value(1), kUnit);
  }
  EXPECT_FALSE(owner.run(fmt::format("range {}", reserved)).ok()) << "nothing is mapped there";
}

// Base and size of the imported range, wherever in it one asks.
TEST_F(AddressRanges, AnImportsAddressRangeIsTheRangeThatWasExported) {
  AclPeer owner = AclPeer::ready(broker_);
  AclPeer importer = AclPeer::ready(broker_);
  const std::uint64_t block = owner.allocate(64 * kKiB, ACL_MEM_MALLOC_NORMAL_ONLY);
  const auto key =
      owner.must(fmt::format("export {} {} {} 65", block + 4096, 8192, kAnyProcess)).words.at(0);
  const std::uint64_t base = importer.must("import " + key).value();
  for (const std::uint64_t inside : {0U, 4096U, 8191U}) {
    const auto range = importer.must(fmt::format("range {}", base + inside));
    EXPECT_EQ(range.value(0), base);
    EXPECT_EQ(range.value(1), 8192U);
  }
}

}  // namespace
}  // namespace hufu::test
