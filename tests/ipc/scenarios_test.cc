// What real users ran into, as two processes would: the rows S of the scenarios, with the codes of
// the contract, the texts people read, and the records an auditor finds.

#include <signal.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "os/process.h"
#include "support/audit_reader.h"
#include "support/probe.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kPage = 4 * kKiB;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
constexpr aclError kDriver = ACL_ERROR_RT_DRV_INTERNAL_ERROR;  // 507899
constexpr aclError kInvalid = ACL_ERROR_RT_PARAM_INVALID;      // 107000

std::string hex(std::uint64_t address) { return fmt::format("{:#x}", address); }

testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
    }
  }
  return testing::AssertionSuccess();
}

class Scenario : public testing::Test {
 protected:
  TestBroker broker;  // Started by the first client, as a user's is.
};

using S1 = Scenario;
TEST_F(S1, APieceThatSharesItsPageIsNotExported) {
  AclPeer exporter = AclPeer::ready(broker);
  const std::uint64_t piece = exporter.allocate(1024, ACL_MEM_MALLOC_NORMAL_ONLY);
  const auto refused = exporter.export_key(piece + 64, 64, kAnyProcess);
  EXPECT_EQ(refused.code, kDriver);
  EXPECT_TRUE(mentions(refused.text, {hex(piece + 64), hex(piece), "4 KiB page", "4096"}));
  exporter.used();  // The report goes one way; this answer comes after it.
  expect_one(broker.records(),
             {.asked = Type::kExport, .reason = Reason::kSlabPiece, .pid = exporter.pid()});
}

using S2 = Scenario;
TEST_F(S2, APageIsSharedWholeAndWithNothingBehindIt) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto neighbour = exporter.share(kPage, 0x77);
  const auto made = exporter.share(kPage, 0x5a, kAnyProcess);
  const auto also_neighbour = exporter.share(kPage, 0x77);
  const auto imported = importer.import(made.key);
  ASSERT_TRUE(imported.ok()) << imported.text;

  const std::uint64_t base = imported.value();
  EXPECT_EQ(importer.must(fmt::format("all-equal {} {} 90", base, kPage)).words, Words{"yes"});
  EXPECT_EQ(importer.must(fmt::format("all-equal {} {} 0", base + kPage, kPage)).words,
            Words{"yes"});
  expect_same_memory(exporter.pid(), made.address, importer.pid(), base, kPage);
  importer.helper.tell(fmt::format("touch {}", base + 2 * kPage));
  EXPECT_EQ(importer.helper.wait(), Ending::killed(SIGSEGV));
}

using S4 = Scenario;
TEST_F(S4, EveryWrongArgumentHasItsCodeAndIsNamed) {
  AclPeer exporter = AclPeer::ready(broker);
  const std::uint64_t block = exporter.allocate(kPage);
  const auto expect = [](const AclPeer::Answer& answer, aclError code, const char* argument) {
    EXPECT_EQ(answer.code, code) << answer.text;
    EXPECT_TRUE(mentions(answer.text, {argument}));
  };
  expect(exporter.export_key(block, 2 * kPage), kDriver, "size");
  expect(exporter.export_key(block, 0), kInvalid, "size");
  expect(exporter.export_key(block, kPage, 0, 64), kInvalid, "len");
  EXPECT_EQ(exporter.export_key(block, kPage, 0, 65).code, ACL_SUCCESS);
  EXPECT_EQ(exporter.export_key(block, kPage, 0, 256).code, ACL_SUCCESS);
  expect(exporter.export_key(block, kPage, 2), kInvalid, "flags");
  expect(exporter.run("export-null devPtr"), ACL_ERROR_INVALID_PARAM, "devPtr");
  expect(exporter.run("export-null key"), ACL_ERROR_INVALID_PARAM, "key");
  expect(exporter.run("import-null devPtr"), ACL_ERROR_INVALID_PARAM, "devPtr");
  expect(exporter.run("import-null key"), ACL_ERROR_INVALID_PARAM, "key");
}

using S5 = Scenario;
TEST_F(S5, AnUnlistedProcessGetsNothingUntilItIsListed) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(64 * kPage, 7);
  const std::uint64_t before = status_kib(importer.pid(), "VmSize");
  const auto refused = importer.import(made.key);
  EXPECT_EQ(refused.code, kDriver);
  EXPECT_TRUE(mentions(refused.text, {std::to_string(importer.pid()),
                                      std::to_string(exporter.pid()), "aclrtIpcMemSetImportPid"}));
  EXPECT_LT(status_kib(importer.pid(), "VmSize"), before + 64 * kPage / kKiB)
      << "something was mapped";
  expect_one(broker.records(), {.asked = Type::kImport,
                                .reason = Reason::kNotListed,
                                .pid = importer.pid(),
                                .owner_pid = exporter.pid()});

  const auto pid = static_cast<pid_t>(importer.must("pid").value());
  EXPECT_EQ(pid, importer.pid());
  EXPECT_TRUE(exporter.list(made.key, pid).ok());
  const auto imported = importer.import(made.key);
  ASSERT_TRUE(imported.ok()) << imported.text;
  EXPECT_EQ(importer.peek(imported.value()), 7);
}

using ListedByPidfd = Scenario;
TEST_F(ListedByPidfd, AProcessMayImportAndNoOther) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  AclPeer other = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 7);
  const auto listed = exporter.run(fmt::format("list-pidfd {} {}", made.key, importer.pid()));
  if (listed.code == ACL_ERROR_RT_FEATURE_NOT_SUPPORT) {
    EXPECT_TRUE(mentions(listed.text, {"aclrtIpcMemSetImportPid", "6.9"}));
    GTEST_SKIP() << "SKIPPED: this kernel has no pidfs (Linux 6.9)";
  }
  ASSERT_TRUE(listed.ok()) << listed.text;
  const auto imported = importer.import(made.key);
  ASSERT_TRUE(imported.ok()) << imported.text;
  EXPECT_EQ(importer.peek(imported.value()), 7);
  EXPECT_EQ(other.import(made.key).code, kDriver);

  const auto record = expect_one(broker.records(), {.type = Type::kListAdd, .pid = exporter.pid()});
  EXPECT_EQ(record.aux, os::pidfs_inode_of(os::open_pidfd(importer.pid())->get()));

  EXPECT_EQ(other.run(fmt::format("list-pidfd {} {}", made.key, other.pid())).code, kDriver)
      << "only the exporter may";
  const auto no_pidfd = exporter.run(fmt::format("list-pidfd {} fd 0", made.key));
  EXPECT_EQ(no_pidfd.code, kInvalid);
  EXPECT_TRUE(mentions(no_pidfd.text, {"descriptor 0", "pidfd"}));
}

using OwnKey = Scenario;
TEST_F(OwnKey, IsImportedByItsExporterExceptWhereTheContractIsTakenStrictly) {
  AclPeer lenient = AclPeer::ready(broker);
  EXPECT_TRUE(lenient.import(lenient.share(kPage, 1).key).ok());

  Environment environment = broker.environment();
  environment.emplace_back("HUFU_STRICT", "cann");
  AclPeer strict(Helper("acl", {.environment = environment}));
  strict.must("device 0");
  const auto made = strict.share(kPage, 1);
  EXPECT_EQ(strict.import(made.key).code, kDriver);
  expect_one(broker.records(),
             {.asked = Type::kImport, .reason = Reason::kNotListed, .pid = strict.pid()});
  EXPECT_TRUE(strict.import(strict.share(kPage, 1, kAnyProcess).key).ok());
}

using S6 = Scenario;
TEST_F(S6, OnlyTheExporterEditsOnlyAListThatExists) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer other = AclPeer::ready(broker);
  const auto open = exporter.share(kPage, 1, kAnyProcess);
  const auto listed = exporter.share(kPage, 1);
  const auto without_list = exporter.list(open.key, other.pid());
  EXPECT_EQ(without_list.code, ACL_ERROR_RT_NO_PERMISSION);
  EXPECT_TRUE(mentions(without_list.text, {"DISABLE_PID_VALIDATION"}));
  // 507899 is the contract's code for it.
  const auto not_its_own = other.list(listed.key, other.pid());
  EXPECT_EQ(not_its_own.code, kDriver);
  EXPECT_TRUE(
      mentions(not_its_own.text, {std::to_string(other.pid()), std::to_string(exporter.pid())}));
  EXPECT_EQ(other.import(listed.key).code, kDriver);
  const auto log = broker.records();
  const auto disabled = expect_one(
      log, {.asked = Type::kListAdd, .reason = Reason::kListDisabled, .pid = exporter.pid()});
  EXPECT_EQ(disabled.acl_code, without_list.code) << "the record has the caller's code";
  const auto foreign = expect_one(
      log, {.asked = Type::kListAdd, .reason = Reason::kNotExporter, .pid = other.pid()});
  EXPECT_EQ(foreign.acl_code, not_its_own.code);
}

using S7 = Scenario;
TEST_F(S7, TwoImportsAreTwoHandlesOnOneMemory) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 1, kAnyProcess);
  const auto first = importer.import(made.key);
  const auto second = importer.import(made.key);
  ASSERT_TRUE(first.ok() && second.ok());
  importer.fill(first.value(), 1, 99);
  EXPECT_EQ(importer.peek(second.value()), 99);
  EXPECT_TRUE(importer.close(made.key).ok());
  EXPECT_EQ(importer.peek(second.value()), 99);
  EXPECT_TRUE(importer.close(made.key).ok());
  EXPECT_EQ(importer.close(made.key).code, kDriver);
  EXPECT_FALSE(place_of(importer.pid(), second.value())) << "it is still mapped";
  expect_one(broker.records(), {.type = Type::kImport, .pid = importer.pid()});
}

using S8 = Scenario;
TEST_F(S8, AnExporterThatClosesFirstTakesNothingFromWhoHoldsIt) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  AclPeer late = AclPeer::ready(broker);
  const auto made = exporter.share(64 * kPage, 3, kAnyProcess);
  const auto imported = importer.import(made.key);
  ASSERT_TRUE(imported.ok()) << imported.text;
  EXPECT_TRUE(exporter.close(made.key).ok());
  exporter.free(made.address);

  const auto refused = late.import(made.key);
  EXPECT_EQ(refused.code, kDriver);
  EXPECT_TRUE(mentions(refused.text, {"export has ended"}));
  EXPECT_EQ(importer.must(fmt::format("all-equal {} {} 3", imported.value(), 64 * kPage)).words,
            Words{"yes"});
  EXPECT_EQ(late.used(), 64 * kPage);
  EXPECT_TRUE(importer.close(made.key).ok());
  EXPECT_EQ(late.used(), 0U);
  EXPECT_EQ(exporter.close(made.key).code, kDriver);
}

using S12 = Scenario;
TEST_F(S12, EveryCharacterOfAKeyMatters) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 1, kAnyProcess);
  for (std::size_t i = 0; i < made.key.size(); ++i) {
    std::string altered = made.key;
    altered[i] = altered[i] == 'A' ? 'B' : 'A';
    ASSERT_EQ(importer.import(altered).code, kDriver) << "character " << i;
  }
  EXPECT_EQ(count(broker.records(),
                  {.asked = Type::kImport, .reason = Reason::kKeyUnknown, .pid = importer.pid()}),
            made.key.size());
  for (const std::string& text : {made.key.substr(0, 63), made.key.substr(0, 1), made.key + "A"}) {
    const auto refused = importer.import(text);
    EXPECT_EQ(refused.code, kDriver) << refused.text;
  }
  EXPECT_EQ(importer.run("import").code, kDriver) << "the empty text";
  EXPECT_EQ(count(broker.records(), {.asked = Type::kImport, .reason = Reason::kKeyMalformed}), 4U);
  EXPECT_TRUE(importer.import(made.key).ok());
}

using P1 = Scenario;
TEST_F(P1, AnAddressInsideAPageIsRefusedWithWhatToDoInstead) {
  AclPeer exporter = AclPeer::ready(broker);
  struct Case {
    std::uint64_t size;
    aclrtMemMallocPolicy policy;
    const char* page;
  };
  for (const Case& block : {Case{4 * kPage, ACL_MEM_MALLOC_NORMAL_ONLY, "4 KiB"},
                            Case{2 * kMiB, ACL_MEM_MALLOC_HUGE_FIRST, "2 MiB"}}) {
    const std::uint64_t base = exporter.allocate(block.size, block.policy);
    const auto range = exporter.must(fmt::format("range {}", base));
    const auto refused = exporter.export_key(base + 64, 64, kAnyProcess);
    EXPECT_EQ(refused.code, kDriver);
    EXPECT_TRUE(mentions(refused.text, {hex(base + 64), block.page, hex(base), "offset 64"}));
    EXPECT_EQ(range.value(0), base);
  }
  EXPECT_EQ(count(broker.records(), {.asked = Type::kExport, .reason = Reason::kNotAligned}), 2U);
  EXPECT_EQ(count(broker.records(), {.type = Type::kExport}), 0U);
}

using P3 = Scenario;
TEST_F(P3, AMisalignedExportFailsAtTheExporterAndYieldsNoKey) {
  AclPeer exporter = AclPeer::ready(broker);
  const std::uint64_t base = exporter.allocate(4 * kPage, ACL_MEM_MALLOC_NORMAL_ONLY);
  for (const std::uint64_t offset : {1UL, 32UL, 512UL, kPage - 1, kPage + 1}) {
    // The helper checks that no byte of the buffer was written.
    const auto refused = exporter.export_key(base + offset, 64);
    EXPECT_EQ(refused.code, kDriver) << "at offset " << offset;
    EXPECT_TRUE(refused.words.empty());
  }
}

using P6 = Scenario;
TEST_F(P6, AnInnerPagesKeyIsForThatRangeAndStartsThere) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const std::uint64_t base = exporter.allocate(4 * kPage, ACL_MEM_MALLOC_NORMAL_ONLY);
  for (int i = 0; i < 4; ++i)
    exporter.fill(base + static_cast<std::uint64_t>(i) * kPage, kPage, i + 1);
  const auto made = exporter.export_key(base + 2 * kPage, kPage, kAnyProcess);
  ASSERT_TRUE(made.ok()) << made.text;
  const auto imported = importer.import(made.words.at(0));
  ASSERT_TRUE(imported.ok()) << imported.text;
  EXPECT_EQ(importer.must(fmt::format("all-equal {} {} 3", imported.value(), kPage)).words,
            Words{"yes"});
  expect_same_memory(exporter.pid(), base + 2 * kPage, importer.pid(), imported.value(), kPage);
  // Before it lies nothing of the block; behind it the guard page.
  const auto before = place_of(importer.pid(), imported.value() - 1);
  const auto inside = place_of(importer.pid(), imported.value());
  ASSERT_TRUE(inside);
  EXPECT_TRUE(!before || before->inode != inside->inode);
  EXPECT_EQ(importer.peek(imported.value() + kPage), 0);
}

using P22 = Scenario;
TEST_F(P22, AsManyClosesAsImports) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 5, kAnyProcess);
  constexpr int kTimes = 100;
  std::uint64_t address = 0;
  for (int i = 0; i < kTimes; ++i)
    address = importer.must("import " + made.key).value();
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_EQ(importer.peek(address), 5) << "after " << i << " closes";
    importer.must("close " + made.key);
  }
  EXPECT_EQ(importer.close(made.key).code, kDriver);
  EXPECT_FALSE(place_of(importer.pid(), address));
  exporter.free(made.address);
  EXPECT_EQ(exporter.used(), 0U);
}

using P23 = Scenario;
TEST_F(P23, AnExporterMayImportItsOwnKey) {
  AclPeer exporter = AclPeer::ready(broker);
  for (const std::uint64_t flags : {std::uint64_t{0}, kAnyProcess}) {
    const auto made = exporter.share(kPage, 1, flags);
    const auto imported = exporter.import(made.key);
    ASSERT_TRUE(imported.ok()) << imported.text;
    exporter.fill(imported.value(), kPage, 2);
    EXPECT_EQ(exporter.peek(made.address), 2);
    EXPECT_TRUE(exporter.close(made.key).ok());   // The import's,
    EXPECT_TRUE(exporter.close(made.key).ok());   // the export's,
    EXPECT_FALSE(exporter.close(made.key).ok());  // and there is no third.
    exporter.free(made.address);
  }
  EXPECT_EQ(exporter.used(), 0U);
}

using P24 = Scenario;
TEST_F(P24, TheSameAddressAgainIsAnotherKey) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto old = exporter.share(kPage, 1, kAnyProcess);
  exporter.free(old.address);
  std::vector<std::uint64_t> tried;
  bool again = false;
  for (int i = 0; i < 100 && !again; ++i) {
    tried.push_back(exporter.allocate(kPage));
    again = tried.back() == old.address;
  }
  const auto fresh = exporter.share(kPage, 2, kAnyProcess);
  EXPECT_NE(fresh.key, old.key);
  if (again) {
    const auto there = exporter.export_key(old.address, kPage, kAnyProcess);
    ASSERT_TRUE(there.ok()) << there.text;
    EXPECT_NE(there.words.at(0), old.key);
    EXPECT_EQ(exporter.peek(old.address), 0) << "memory that was exported came back with its bytes";
  }
  const auto refused = importer.import(old.key);
  EXPECT_EQ(refused.code, kDriver);
  EXPECT_TRUE(mentions(refused.text, {"export has ended"}));
}

using P25 = Scenario;
TEST_F(P25, AKeyStaysWithItsMemoryWhenTheAddressIsMappedAnew) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto old = exporter.share(kPage, 1, kAnyProcess);
  const std::uint64_t held = importer.import(old.key).value();
  exporter.free(old.address);
  std::uint64_t there = 0;
  for (int i = 0; i < 100 && there != old.address; ++i)
    there = exporter.allocate(kPage);
  if (kSanitized && there != old.address) {
    GTEST_SKIP()
        << "SKIPPED: the address did not come again, a sanitizer has mapped something there";
  }
  ASSERT_EQ(there, old.address) << "the address did not come again; nothing was tested";
  exporter.fill(there, kPage, 2);
  EXPECT_EQ(importer.peek(held), 1);
  EXPECT_FALSE(importer.import(old.key).ok()) << "a key led to what lies at its address now";
  EXPECT_TRUE(importer.import(exporter.export_key(there, kPage, kAnyProcess).words.at(0)).ok());
}

using P26 = Scenario;
TEST_F(P26, AnImportThatIsHeldIsNotServedOnceItsExportIsDead) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 1, kAnyProcess);
  importer.must("import " + made.key);
  exporter.must("close " + made.key);
  // Held, mapped and known here; all the same nobody gets it any more.
  const auto refused = importer.import(made.key);
  EXPECT_EQ(refused.code, kDriver);
  EXPECT_TRUE(mentions(refused.text, {"export has ended"}));
  expect_one(broker.records(),
             {.asked = Type::kImport, .reason = Reason::kExportEnded, .pid = importer.pid()});
  EXPECT_TRUE(importer.close(made.key).ok());
}

using P36 = Scenario;
TEST_F(P36, AKeyIsTextAndTravelsAsText) {
  AclPeer exporter = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 6, kAnyProcess);
  EXPECT_EQ(made.key.size(), 64U);
  EXPECT_EQ(made.key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789-_"),
            std::string::npos)
      << "JSON, a URL or a shell would have to escape it";

  AclPeer by_file = AclPeer::ready(broker);
  const std::string path = broker.directory() + "/key";
  std::ofstream(path) << made.key;
  EXPECT_EQ(by_file.peek(by_file.must("import-file " + path).value()), 6);

  Environment environment = broker.environment();
  environment.emplace_back("THE_KEY", made.key);
  AclPeer by_environment(Helper("acl", {.environment = environment, .uid = {}}));
  by_environment.must("device 0");
  EXPECT_EQ(by_environment.peek(by_environment.must("import-environment THE_KEY").value()), 6);
}

using P39 = Scenario;
TEST_F(P39, NoKeyIsEverFoundInLogsErrorsOrCommandLines) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  AclPeer stranger = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 1);
  std::string texts;
  texts += stranger.import(made.key).text;
  texts += stranger.list(made.key, stranger.pid()).text;
  texts += stranger.close(made.key).text;
  exporter.list(made.key, importer.pid());
  importer.must("import " + made.key);
  importer.must("close " + made.key);
  texts += importer.close(made.key).text;
  exporter.must("close " + made.key);
  texts += exporter.close(made.key).text;
  texts += importer.import(made.key).text;
  const std::string id = exporter.must("public-id " + made.key).words.at(0);

  EXPECT_FALSE(texts.empty());
  EXPECT_EQ(texts.find(made.key), std::string::npos) << texts;
  EXPECT_TRUE(mentions(texts, {id}));
  EXPECT_FALSE(in_any_command_line(made.key));
  std::size_t files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(broker.directory())) {
    if (!file.is_regular_file()) continue;
    ++files;
    EXPECT_FALSE(in_file(file.path(), made.key)) << file.path();
    // Nor a part of it that would help anybody.
    EXPECT_FALSE(in_file(file.path(), made.key.substr(0, 32))) << file.path();
    EXPECT_FALSE(in_file(file.path(), made.key.substr(32))) << file.path();
  }
  EXPECT_GT(files, 1U);
  // What the logs and errors do name opens nothing.
  EXPECT_EQ(stranger.import(id).code, kDriver);
  EXPECT_EQ(stranger.import(id + id).code, kDriver);
}

// D35
using Sharing = Scenario;
TEST_F(Sharing, IsTheSamePagesAndNoCopy) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  constexpr std::uint64_t kSize = 64 * kMiB;
  // Under a page for each MiB.
  constexpr std::uint64_t kMostKib = kSize / kMiB * kPage / kKiB + kSanitizerKib;
  const auto made = exporter.share(kSize, 0x11, kAnyProcess);
  // Once for the code itself, which is loaded when it first runs.
  const auto small = exporter.share(kPage, 0x11, kAnyProcess);
  importer.must("import " + small.key);
  importer.must("close " + small.key);

  const std::uint64_t before = status_kib(importer.pid(), "VmRSS");
  const std::uint64_t base = importer.must("import " + made.key).value();
  EXPECT_LT(status_kib(importer.pid(), "VmRSS"), before + kMostKib);
  const std::uint64_t own = status_kib(importer.pid(), "RssAnon");
  importer.must(fmt::format("populate {} {}", base, kSize));
  EXPECT_LT(status_kib(importer.pid(), "RssAnon"), own + kMostKib);
  expect_same_memory(exporter.pid(), made.address, importer.pid(), base, kSize);

  importer.fill(base + kSize - 1, 1, 0x22);
  EXPECT_EQ(exporter.peek(made.address + kSize - 1), 0x22);
  // The descriptor is not kept: nobody can be talked into passing it on.
  for (const std::string& target : descriptors_of(importer.pid()))
    EXPECT_EQ(target.find("memfd:"), std::string::npos) << target;
}

}  // namespace
}  // namespace hufu::test
