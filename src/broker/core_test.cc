#include "broker/core.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/verify.h"
#include "os/memfd.h"

namespace hufu::broker {
namespace {

// Talks to a Core as two processes would: session 1 exports, session 2 imports.
class Broker : public ::testing::Test {
 protected:
  static constexpr SessionId kExporter = 1;
  static constexpr SessionId kImporter = 2;

  void SetUp() override {
    char name[] = "/tmp/hufu-core-XXXXXX";
    directory_ = ::mkdtemp(name);
    auto log = audit::Log::open({.directory = directory_, .version = "test"});
    ASSERT_TRUE(log) << log.error().what();
    log_ = std::make_unique<audit::Log>(std::move(*log));
    committer_ = std::make_unique<Committer>(*log_);
    reaper_ = std::make_unique<Reaper>();
    start({});
  }
  // A new broker with these quotas, and both clients at it.
  void start(const Limits& limits, std::chrono::nanoseconds silence = std::chrono::seconds(5)) {
    core_ = std::make_unique<Core>(
        CoreOptions{
            .devices = 2, .device_capacity = capacity_, .limits = limits, .silence = silence},
        std::move(*KeySeal::make()), std::move(*os::PublishedMemory::make("life", 4096)), *log_,
        *committer_, *reaper_);
    request_ = 0;
    join(kExporter);
    join(kImporter);
  }
  void TearDown() override {
    core_.reset();
    committer_.reset();
    log_.reset();
    std::filesystem::remove_all(directory_);
  }

  static std::int32_t pid_of(SessionId id) { return static_cast<std::int32_t>(1000 + id); }
  static os::Credentials who(SessionId id) { return {.pid = pid_of(id), .uid = 1000, .gid = 1000}; }

  void connect(SessionId id) {
    os::PeerIdentity peer;
    peer.connected = who(id);
    peer.pidfs_inode = 5000 + id;
    peer.pidfd = std::move(*os::open_pidfd(::getpid()));
    ASSERT_FALSE(core_->open(id, std::move(peer)));
  }
  void join(SessionId id) {
    connect(id);
    ASSERT_TRUE(ok<wire::Hello>(ask(id, wire::Hello{})));
  }

  template <class R>
  Answer ask(SessionId id, const R& request, std::uint16_t flags = 0) {
    const auto frame = wire::encode(wire::Protocol<R>::kKind, flags, ++request_, request);
    return core_->handle(id, frame.view(), who(id));
  }
  template <class R>
  std::optional<typename wire::Protocol<R>::Reply> ok(const Answer& answer) {
    if (!answer.frame) return std::nullopt;
    auto decoded = wire::decode_reply<R>(answer.frame->view(), request_);
    auto* reply = decoded ? std::get_if<0>(&*decoded) : nullptr;
    return reply == nullptr ? std::nullopt : std::optional(*reply);
  }
  template <class R>
  Reason refused(const Answer& answer) {
    auto decoded = answer.frame ? wire::decode_reply<R>(answer.frame->view(), request_)
                                : std::optional<wire::Answer<R>>();
    auto* refusal = decoded ? std::get_if<wire::Refusal>(&*decoded) : nullptr;
    return refusal == nullptr ? Reason::kNone : static_cast<Reason>(refusal->reason);
  }

  // A committed block of `size` bytes that starts with `text`.
  BlockId mint(SessionId id, std::uint64_t size = 4096, const char* text = "bytes") {
    wire::Mint mint{};
    mint.count = 1;
    mint.specs[0] = {.size = size, .page = 4096, .flags = 0};
    Answer answer = ask(id, mint);
    const auto reply = ok<wire::Mint>(answer);
    if (!reply || answer.fds.size() != 1) return 0;
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                          answer.fds[0].get(), 0);
    std::memset(memory, 0, size);
    std::strcpy(static_cast<char*>(memory), text);
    ::munmap(memory, size);
    return reply->blocks[0];
  }
  static wire::Export whole(BlockId block, std::uint32_t flags = wire::kAnyProcess) {
    return {.block = block,
            .offset = 0,
            .size = 4096,
            .reported_size = 4128,
            .flags = flags,
            .reserved = 0};
  }
  std::string export_block(BlockId block, std::uint32_t flags = wire::kAnyProcess) {
    const auto reply = ok<wire::Export>(ask(kExporter, whole(block, flags)));
    return reply ? std::string(reply->key.begin(), reply->key.end()) : std::string();
  }
  static wire::Import import_of(const std::string& key, std::uint32_t access = 0) {
    return {.key = wire::key_text(key.c_str()), .access = access, .flags = 0};
  }
  // Until nothing is due any more.
  void pass_time() {
    while (core_->next_due_in())
      core_->keep_time();
  }
  std::vector<audit::Record> records() {
    std::vector<audit::Record> found;
    (void)audit::verify_directory(directory_,
                                  [&](const audit::Record& record) { found.push_back(record); });
    return found;
  }

  std::string directory_;
  std::unique_ptr<audit::Log> log_;
  std::unique_ptr<Committer> committer_;
  std::unique_ptr<Reaper> reaper_;
  std::unique_ptr<Core> core_;
  std::uint64_t request_ = 0;
  std::uint64_t capacity_ = kMiB;
};

TEST_F(Broker, HandsTheSameMemoryToAnImporter) {
  const std::string key = export_block(mint(kExporter));
  ASSERT_EQ(key.size(), 64U);
  Answer answer = ask(kImporter, import_of(key));
  const auto reply = ok<wire::Import>(answer);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->size, 4096U);
  EXPECT_EQ(reply->exporter_pid, pid_of(kExporter));
  ASSERT_EQ(answer.fds.size(), 1U);
  char text[6] = {};
  ASSERT_EQ(::pread(answer.fds[0].get(), text, 5, 0), 5);
  EXPECT_STREQ(text, "bytes");
}

TEST_F(Broker, RecordsTheGrantBeforeItAnswers) {
  const std::string key = export_block(mint(kExporter));
  ASSERT_TRUE(ok<wire::Import>(ask(kImporter, import_of(key))));
  const auto found = records();
  ASSERT_GE(found.size(), 2U);
  const audit::Record& record = found.back();
  EXPECT_EQ(record.type, audit::Type::kImport);
  EXPECT_EQ(record.outcome, audit::Outcome::kAllow);
  EXPECT_EQ(record.actor.pid, static_cast<std::uint32_t>(pid_of(kImporter)));
  EXPECT_EQ(record.owner.pid, static_cast<std::uint32_t>(pid_of(kExporter)));
  EXPECT_EQ(record.refs_after, 1U);
}

TEST_F(Broker, GrantsNothingThatItCannotRecord) {
  const BlockId block = mint(kExporter);
  const std::string key = export_block(block);
  // The log fails for good: its files are gone, and its segment is full at some point.
  std::filesystem::remove_all(directory_);
  Answer answer;
  for (int i = 0; i < 20'000; ++i) {
    answer = ask(kImporter, import_of(key));
    if (!ok<wire::Import>(answer)) break;
    ASSERT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{core_->ledger().share_after(0)->id})));
  }
  EXPECT_EQ(refused<wire::Import>(answer), Reason::kAuditFailed);
  EXPECT_TRUE(answer.fds.empty());
  EXPECT_TRUE(core_->ledger().share_after(0)->holders.empty());
}

TEST_F(Broker, RefusesAnUnlistedProcessAndAllowsAListedOne) {
  const std::string key = export_block(mint(kExporter), 0);
  const Answer answer = ask(kImporter, import_of(key));
  EXPECT_EQ(refused<wire::Import>(answer), Reason::kNotListed);
  EXPECT_TRUE(answer.fds.empty());
  EXPECT_EQ(records().back().reason, Reason::kNotListed);

  // The importer's pid is made up, so list a process that exists and is not the importer.
  wire::ListPid list{};
  list.key = wire::key_text(key.c_str());
  list.count = 1;
  list.pids[0] = ::getpid();
  const auto listed = ok<wire::ListPid>(ask(kExporter, list));
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->listed, 1U);
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, import_of(key))), Reason::kNotListed);
  EXPECT_EQ(ok<wire::ListPid>(ask(kExporter, list))->listed, 1U) << "listing twice counts once";
}

TEST_F(Broker, ListsNoProcessThatIsNotThere) {
  const std::string key = export_block(mint(kExporter), 0);
  wire::ListPid list{};
  list.key = wire::key_text(key.c_str());
  list.count = 2;
  list.pids[0] = ::getpid();
  list.pids[1] = 0x3fffffff;
  EXPECT_EQ(refused<wire::ListPid>(ask(kExporter, list)), Reason::kNoSuchProcess);
  EXPECT_TRUE(core_->ledger().share_after(0)->listed.empty()) << "all or nothing";
}

TEST_F(Broker, AProcessIsListedByItsInodeToo) {
  const std::string key = export_block(mint(kExporter), 0);
  const wire::ListProcess list{.key = wire::key_text(key.c_str()), .pidfs_inode = 5000 + kImporter};
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, import_of(key))), Reason::kNotListed);
  const auto listed = ok<wire::ListProcess>(ask(kExporter, list));
  ASSERT_TRUE(listed) << "the answer has the request's kind";
  EXPECT_EQ(listed->added, 1U);
  EXPECT_TRUE(ok<wire::Import>(ask(kImporter, import_of(key))));
}

TEST_F(Broker, OnlyTheExporterEditsTheList) {
  const std::string key = export_block(mint(kExporter), 0);
  wire::ListPid list{};
  list.key = wire::key_text(key.c_str());
  list.count = 1;
  list.pids[0] = ::getpid();
  EXPECT_EQ(refused<wire::ListPid>(ask(kImporter, list)), Reason::kNotExporter);
  const std::string open = export_block(mint(kExporter));
  list.key = wire::key_text(open.c_str());
  EXPECT_EQ(refused<wire::ListPid>(ask(kExporter, list)), Reason::kListDisabled);
}

TEST_F(Broker, AnotherSendersCredentialsEndTheConnection) {
  const std::string key = export_block(mint(kExporter));
  const auto frame = wire::encode(wire::Kind::kImport, 0, ++request_, import_of(key));
  const Answer child = core_->handle(kImporter, frame.view(),
                                     {.pid = pid_of(kImporter) + 1, .uid = 1000, .gid = 1000});
  EXPECT_TRUE(child.hang_up);
  EXPECT_TRUE(child.fds.empty());
  EXPECT_EQ(records().back().reason, Reason::kIdentityChanged);
}

TEST_F(Broker, AWithdrawnKeyIsDeadAndHeldMemoryStays) {
  const std::string key = export_block(mint(kExporter));
  const auto grant = ok<wire::Import>(ask(kImporter, import_of(key)));
  ASSERT_TRUE(grant);
  ASSERT_TRUE(ok<wire::Withdraw>(ask(kExporter, wire::Withdraw{wire::key_text(key.c_str())})));
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, import_of(key))), Reason::kExportEnded);
  EXPECT_EQ(refused<wire::Withdraw>(ask(kExporter, wire::Withdraw{wire::key_text(key.c_str())})),
            Reason::kExportEnded);
  EXPECT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{grant->share})));
  EXPECT_EQ(refused<wire::Close>(ask(kImporter, wire::Close{grant->share})), Reason::kNotImported);
}

TEST_F(Broker, TheKernelIsAskedWhetherTheLastCloseIsTrue) {
  const std::string key = export_block(mint(kExporter));
  {
    Answer answer = ask(kImporter, import_of(key));
    const auto grant = ok<wire::Import>(answer);
    ASSERT_TRUE(grant);
    // The importer claims to have closed and keeps the descriptor.
    ASSERT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{grant->share})));
    EXPECT_EQ(records().back().type, audit::Type::kStillHeld);
  }
  const auto grant = ok<wire::Import>(ask(kImporter, import_of(key)));  // Not kept.
  ASSERT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{grant->share})));
  // Broker uid 0 in these options, importer 1000: silence is a proof.
  EXPECT_EQ(records().back().type, audit::Type::kReleaseVerified);
}

// A process's socket may end before its mappings do.
TEST_F(Broker, WhoHasJustEndedIsAskedAboutAgain) {
  for (const bool freed : {false, true}) {
    SCOPED_TRACE(freed);
    const BlockId block = mint(kExporter);
    const std::string key = export_block(block);
    join(3);
    Answer answer = ask(3, import_of(key));
    ASSERT_TRUE(ok<wire::Import>(answer));
    if (freed) ask(kExporter, wire::Free{block});
    core_->end(3);
    EXPECT_NE(records().back().type, audit::Type::kStillHeld);
    EXPECT_NE(records().back().type, audit::Type::kReleaseVerified);
    answer.fds.clear();
    pass_time();
    EXPECT_EQ(records().back().type, audit::Type::kReleaseVerified);
    EXPECT_EQ(records().back().actor.pid, static_cast<std::uint32_t>(pid_of(3)));
  }
}

TEST_F(Broker, WhatIsHeldLongAfterAnEndIsSaidToBe) {
  const std::string key = export_block(mint(kExporter));
  const Answer answer = ask(kImporter, import_of(key));
  ASSERT_TRUE(ok<wire::Import>(answer));
  core_->end(kImporter);
  pass_time();
  EXPECT_EQ(records().back().type, audit::Type::kStillHeld);
}

TEST_F(Broker, DoubtsAreWrittenBeforeItLeaves) {
  const std::string key = export_block(mint(kExporter));
  const Answer answer = ask(kImporter, import_of(key));
  ASSERT_TRUE(ok<wire::Import>(answer));
  core_->end(kImporter);
  core_->settle_doubts();
  EXPECT_EQ(records().back().type, audit::Type::kStillHeld);
  EXPECT_FALSE(core_->next_due_in());
}

TEST_F(Broker, WhoHoldsItNowIsNotTakenForWhoHasEnded) {
  const std::string key = export_block(mint(kExporter));
  Answer answer = ask(kImporter, import_of(key));
  core_->end(kImporter);
  join(3);
  const Answer other = ask(3, import_of(key));
  ASSERT_TRUE(ok<wire::Import>(other));
  answer.fds.clear();
  pass_time();
  EXPECT_EQ(records().back().type, audit::Type::kImport);
}

// The next importer gets what the kernel was asked with, and it counts as the importer's from then
// on; one that is opened when there is nothing to do counts for nobody.
TEST_F(Broker, AFileOpenedAheadIsNobodysUntilItIsGranted) {
  const std::string key = export_block(mint(kExporter));
  core_->do_spare_work();
  EXPECT_FALSE(core_->has_spare_work());
  for (int i = 0; i < 3; ++i) {
    Answer answer = ask(kImporter, import_of(key));
    const auto grant = ok<wire::Import>(answer);
    ASSERT_TRUE(grant);
    core_->do_spare_work();
    const UniqueFd kept = i == 1 ? std::move(answer.fds[0]) : UniqueFd();
    answer.fds.clear();
    ASSERT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{grant->share})));
    EXPECT_EQ(records().back().type,
              i == 1 ? audit::Type::kStillHeld : audit::Type::kReleaseVerified)
        << i;
  }
}

TEST_F(Broker, TheFileOfAReadOnlyWishIsReadOnly) {
  const std::string key = export_block(mint(kExporter));
  core_->do_spare_work();
  const Answer answer =
      ask(kImporter, import_of(key, static_cast<std::uint32_t>(Access::kReadOnly)));
  ASSERT_EQ(answer.fds.size(), 1U);
  EXPECT_EQ(::fcntl(answer.fds[0].get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  const Answer whole = ask(kImporter, import_of(key));
  ASSERT_EQ(whole.fds.size(), 1U);
  EXPECT_EQ(::fcntl(whole.fds[0].get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(Broker, TheExportersEndKillsItsKeysAndKeepsHeldMemory) {
  const std::string key = export_block(mint(kExporter));
  const auto grant = ok<wire::Import>(ask(kImporter, import_of(key)));
  ASSERT_TRUE(grant);
  core_->end(kExporter);
  EXPECT_EQ(core_->ledger().used(0), 4096U);
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, import_of(key))), Reason::kExportEnded);
  core_->end(kImporter);
  EXPECT_EQ(core_->ledger().used(0), 0U);
  EXPECT_EQ(core_->ledger().shares(), 0U);
}

TEST_F(Broker, CapacityIsChargedAndGivenBack) {
  const BlockId block = mint(kExporter, kMiB);
  ASSERT_NE(block, 0U);
  wire::Mint more{};
  more.count = 1;
  more.specs[0] = {.size = 4096, .page = 4096, .flags = 0};
  EXPECT_EQ(refused<wire::Mint>(ask(kImporter, more)), Reason::kCapacity);
  more.device = 1;
  EXPECT_TRUE(ok<wire::Mint>(ask(kImporter, more))) << "devices have their own";
  more.device = 2;
  EXPECT_EQ(refused<wire::Mint>(ask(kImporter, more)), Reason::kNoDevice);
  ask(kExporter, wire::Free{block}, wire::kOneWay);
  EXPECT_EQ(core_->ledger().used(0), 0U);
}

TEST_F(Broker, ASumThatWrapsIsNoBargain) {
  wire::Mint mint{};
  mint.count = 2;
  mint.specs[0] = {.size = ~std::uint64_t{4095}, .page = 4096, .flags = 0};
  mint.specs[1] = {.size = 8192, .page = 4096, .flags = 0};
  EXPECT_EQ(refused<wire::Mint>(ask(kExporter, mint)), Reason::kCapacity);
}

TEST_F(Broker, AnotherSessionsBlockIsUnknown) {
  const BlockId block = mint(kExporter);
  EXPECT_EQ(refused<wire::Export>(ask(kImporter, whole(block))), Reason::kUnknownBlock);
  EXPECT_EQ(refused<wire::Free>(ask(kImporter, wire::Free{block})), Reason::kUnknownBlock);
  EXPECT_EQ(core_->ledger().used(0), 4096U);
}

TEST_F(Broker, TheFirstExportDecidesReadOnlyForGood) {
  const BlockId block = mint(kExporter);
  const std::string key = export_block(block, wire::kAnyProcess | wire::kReadOnly);
  ASSERT_EQ(key.size(), 64U);
  EXPECT_EQ(refused<wire::Export>(ask(kExporter, whole(block))), Reason::kSealKind);
  Answer answer = ask(kImporter, import_of(key));
  ASSERT_TRUE(ok<wire::Import>(answer));
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, answer.fds[0].get(), 0),
            MAP_FAILED);
  const auto again = os::reopen(answer.fds[0].get(), Access::kReadWrite);
  if (again) {
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again->get(), 0),
              MAP_FAILED);
  }
}

// Each quota is reached, its refusal names use and limit, and what is given back counts no more.
class Quota : public Broker {
 protected:
  template <class R>
  void expect_refused(const Answer& answer, Reason reason, std::uint64_t use, std::uint64_t limit) {
    auto decoded = answer.frame ? wire::decode_reply<R>(answer.frame->view(), request_)
                                : std::optional<wire::Answer<R>>();
    const auto* refusal = decoded ? std::get_if<wire::Refusal>(&*decoded) : nullptr;
    ASSERT_NE(refusal, nullptr);
    EXPECT_EQ(static_cast<Reason>(refusal->reason), reason);
    EXPECT_EQ(refusal->number[0], use);
    EXPECT_EQ(refusal->number[1], limit);
  }
  static wire::Mint one_page() {
    wire::Mint mint{};
    mint.count = 1;
    mint.specs[0] = {.size = 4096, .page = 4096, .flags = 0};
    return mint;
  }
  std::uint64_t import(SessionId id, const std::string& key) {
    const auto grant = ok<wire::Import>(ask(id, import_of(key)));
    return grant ? grant->share : 0;
  }
};

TEST_F(Quota, OfSessionsIsSaidInAnswerToHello) {
  start({.sessions_per_uid = 2});
  connect(3);
  const Answer answer = ask(3, wire::Hello{});
  expect_refused<wire::Hello>(answer, Reason::kTooManySessions, 2, 2);
  EXPECT_TRUE(answer.hang_up);
  EXPECT_EQ(records().back().reason, Reason::kTooManySessions);
  core_->end(3);
  core_->end(kImporter);
  join(4);
}

TEST_F(Quota, OfSessionsDoesNotCountTheOneThatIsReplaced) {
  start({.sessions_per_uid = 2});
  os::PeerIdentity peer;
  peer.connected = who(kExporter);
  peer.pidfs_inode = 5000 + kExporter;
  peer.pidfd = std::move(*os::open_pidfd(::getpid()));
  ASSERT_FALSE(core_->open(3, std::move(peer)));
  const auto frame = wire::encode(wire::Kind::kHello, 0, ++request_, wire::Hello{});
  EXPECT_TRUE(ok<wire::Hello>(core_->handle(3, frame.view(), who(kExporter))));
}

TEST_F(Quota, OfConnectionsIsSaidBeforeAnythingIsAsked) {
  start({.sessions_per_uid = 2});
  const std::uint64_t limit = Limits{.sessions_per_uid = 2}.connections_per_uid();
  for (SessionId id = 3; id <= limit; ++id)
    connect(id);
  os::PeerIdentity late;
  late.connected = who(1000);
  const auto frame = core_->open(1000, std::move(late));
  ASSERT_TRUE(frame);
  const auto refusal = wire::decode_unnumbered(frame->view());
  ASSERT_TRUE(refusal);
  EXPECT_EQ(static_cast<Reason>(refusal->reason), Reason::kTooManySessions);
  EXPECT_EQ(refusal->number[0], limit);
  EXPECT_EQ(refusal->number[1], limit);

  os::PeerIdentity other;
  other.connected = {.pid = 77, .uid = 1001, .gid = 1001};
  EXPECT_FALSE(core_->open(1001, std::move(other))) << "another user has a quota of its own";
}

TEST_F(Quota, OfSilentConnectionsIsTheUsersAndOnlyOfThose) {
  start({.silent_per_uid = 2});
  connect(3);
  connect(4);
  const auto refused = [&](std::uint32_t uid) {
    os::PeerIdentity late;
    late.connected = {.pid = 77, .uid = uid, .gid = uid};
    return core_->open(1000 + uid, std::move(late)).has_value();
  };
  EXPECT_TRUE(refused(1000));
  EXPECT_FALSE(refused(1001));
  ASSERT_TRUE(ok<wire::Hello>(ask(3, wire::Hello{})));
  connect(5);
  EXPECT_TRUE(refused(1000));
  core_->end(4);
  connect(6);
}

TEST_F(Quota, OfSilenceIsTimeAndThenTheConnectionIsOver) {
  start({}, std::chrono::nanoseconds(1));
  EXPECT_FALSE(core_->next_due_in()) << "both have said HELLO";
  connect(3);
  ASSERT_TRUE(core_->next_due_in());
  core_->keep_time();
  EXPECT_EQ(core_->take_superseded(), std::vector<SessionId>{3});
  EXPECT_FALSE(core_->next_due_in());
}

TEST_F(Quota, OfBlocksIsTheUsersAndCountsFreedOnesThatAreHeld) {
  start({.blocks_per_uid = 2});
  const BlockId block = mint(kExporter);
  const std::uint64_t held = import(kImporter, export_block(block));
  mint(kImporter);
  expect_refused<wire::Mint>(ask(kExporter, one_page()), Reason::kTooManyBlocks, 2, 2);
  ASSERT_TRUE(ok<wire::Free>(ask(kExporter, wire::Free{block})));
  expect_refused<wire::Mint>(ask(kExporter, one_page()), Reason::kTooManyBlocks, 2, 2);
  ASSERT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{held})));
  EXPECT_TRUE(ok<wire::Mint>(ask(kExporter, one_page())));
}

TEST_F(Quota, OfBlocksIsJudgedForTheWholeRequest) {
  start({.blocks_per_uid = 2});
  wire::Mint three{};
  three.count = 3;
  for (std::size_t i = 0; i < 3; ++i)
    three.specs[i] = {.size = 4096, .page = 4096, .flags = 0};
  expect_refused<wire::Mint>(ask(kExporter, three), Reason::kTooManyBlocks, 0, 2);
  EXPECT_EQ(core_->ledger().blocks(), 0U);
}

TEST_F(Quota, OfDescriptorsIsEverybodysTogether) {
  start({.blocks = 1});
  mint(kExporter);
  expect_refused<wire::Mint>(ask(kImporter, one_page()), Reason::kDescriptors, 1, 1);
}

TEST_F(Quota, OfExportsIsTheSessionsLiveOnes) {
  start({.exports_per_session = 4});
  const BlockId block = mint(kExporter);
  std::string key;
  for (int i = 0; i < 4; ++i) {
    key = export_block(block);
    ASSERT_FALSE(key.empty());
  }
  expect_refused<wire::Export>(ask(kExporter, whole(block)), Reason::kTooManyExports, 4, 4);
  ASSERT_TRUE(ok<wire::Withdraw>(ask(kExporter, wire::Withdraw{wire::key_text(key.c_str())})));
  EXPECT_FALSE(export_block(block).empty());
}

// Export, import, withdraw, again: each leaves a dead share that the importer holds.
TEST_F(Quota, OfSharesCountsEndedOnesThatAreHeld) {
  start({.shares_per_uid = 3});
  const BlockId block = mint(kExporter);
  std::uint64_t held = 0;
  for (int i = 0; i < 3; ++i) {
    const std::string key = export_block(block);
    held = import(kImporter, key);
    ASSERT_NE(held, 0U);
    ASSERT_TRUE(ok<wire::Withdraw>(ask(kExporter, wire::Withdraw{wire::key_text(key.c_str())})));
  }
  expect_refused<wire::Export>(ask(kExporter, whole(block)), Reason::kTooManyShares, 3, 3);
  ASSERT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{held})));
  EXPECT_FALSE(export_block(block).empty());
}

TEST_F(Quota, OfHoldsIsTheImportersUsersAndARepeatIsFree) {
  start({.holds_per_uid = 2});
  const BlockId block = mint(kExporter);
  const std::string one = export_block(block);
  const std::string two = export_block(block);
  const std::string three = export_block(block);
  const std::uint64_t held = import(kImporter, one);
  ASSERT_NE(import(kExporter, two), 0U);
  expect_refused<wire::Import>(ask(kImporter, import_of(three)), Reason::kTooManyHolds, 2, 2);
  EXPECT_EQ(import(kImporter, one), held);
  ASSERT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{held})));
  EXPECT_NE(import(kImporter, three), 0U);
}

// D16: the words of the session's status memory.
TEST_F(Quota, OfImportsIsWhatTheStatusMemoryHolds) {
  const BlockId block = mint(kExporter);
  constexpr std::uint64_t kWords = wire::kStatusWords - 1;
  std::uint64_t held = 0;
  for (std::uint64_t i = 0; i < kWords; ++i) {
    held = import(kImporter, export_block(block));
    ASSERT_NE(held, 0U) << i;
  }
  const std::string key = export_block(block);
  expect_refused<wire::Import>(ask(kImporter, import_of(key)), Reason::kTooManyImports, kWords,
                               kWords);
  ASSERT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{held})));
  EXPECT_NE(import(kImporter, key), 0U);
}

TEST_F(Quota, OfListEntriesIsTheExportersUsersAndEndsWithTheShare) {
  start({.listed_per_uid = 1});
  const std::string one = export_block(mint(kExporter), 0);
  const std::string two = export_block(mint(kExporter), 0);
  wire::ListPid list{};
  list.key = wire::key_text(one.c_str());
  list.count = 1;
  list.pids[0] = ::getpid();
  ASSERT_TRUE(ok<wire::ListPid>(ask(kExporter, list)));
  EXPECT_TRUE(ok<wire::ListPid>(ask(kExporter, list))) << "who is listed takes no second entry";
  list.key = wire::key_text(two.c_str());
  expect_refused<wire::ListPid>(ask(kExporter, list), Reason::kTooManyListed, 1, 1);
  ASSERT_TRUE(ok<wire::Withdraw>(ask(kExporter, wire::Withdraw{wire::key_text(one.c_str())})));
  EXPECT_TRUE(ok<wire::ListPid>(ask(kExporter, list)));
}

TEST_F(Quota, OfWhoIsGoneIsForgotten) {
  const std::string key = export_block(mint(kExporter), 0);
  wire::ListPid list{};
  list.key = wire::key_text(key.c_str());
  list.count = 1;
  list.pids[0] = ::getpid();
  ASSERT_TRUE(ok<wire::ListPid>(ask(kExporter, list)));
  ASSERT_NE(import(kImporter, export_block(mint(kExporter))), 0U);
  const Usage usage = core_->ledger().usage_of(1000);
  EXPECT_EQ(
      usage,
      (Usage{.connections = 2, .sessions = 2, .blocks = 2, .shares = 2, .holds = 1, .listed = 1}));
  core_->end(kExporter);
  core_->end(kImporter);
  EXPECT_EQ(core_->ledger().usage_of(1000), Usage{});
}

// D19: the last request sent again is answered from what is there.
class Repeat : public Broker {
 protected:
  template <class R>
  Answer again(SessionId id, const R& request) {
    const auto frame = wire::encode(wire::Protocol<R>::kKind, 0, request_, request);
    return core_->handle(id, frame.view(), who(id));
  }
  static bool same(const Answer& one, const Answer& two) {
    return one.frame && two.frame && std::ranges::equal(one.frame->view(), two.frame->view());
  }
};

TEST_F(Repeat, OfMintIsOneChargeAndTheSameMemory) {
  wire::Mint mint{};
  mint.count = 2;
  mint.specs[0] = {.size = 4096, .page = 4096, .flags = 0};
  mint.specs[1] = {.size = 8192, .page = 4096, .flags = 0};
  const Answer first = ask(kExporter, mint);
  const Answer second = again(kExporter, mint);
  EXPECT_TRUE(same(first, second));
  EXPECT_EQ(core_->ledger().used(0), 12'288U);
  ASSERT_EQ(second.fds.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(os::facts_of(first.fds[i].get())->inode, os::facts_of(second.fds[i].get())->inode);
  }
}

TEST_F(Repeat, OfImportIsOneRecordOneCountAndAFreshDescriptor) {
  const std::string key = export_block(mint(kExporter), wire::kAnyProcess | wire::kReadOnly);
  const Answer first = ask(kImporter, import_of(key));
  const auto written = records().size();
  const Answer second = again(kImporter, import_of(key));
  EXPECT_TRUE(same(first, second));
  EXPECT_EQ(records().size(), written);
  EXPECT_EQ(core_->ledger().usage_of(1000).holds, 1U);
  EXPECT_EQ(core_->ledger().share_after(0)->imports, 1U);
  ASSERT_EQ(second.fds.size(), 1U);
  EXPECT_EQ(::fcntl(second.fds[0].get(), F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST_F(Repeat, OfExportIsTheSameKey) {
  const BlockId block = mint(kExporter);
  const Answer first = ask(kExporter, whole(block));
  EXPECT_TRUE(same(first, again(kExporter, whole(block))));
  EXPECT_EQ(core_->ledger().shares(), 1U);
}

TEST_F(Repeat, OfHelloIsTheSameSession) {
  connect(3);
  const Answer first = ask(3, wire::Hello{});
  const Answer second = again(3, wire::Hello{});
  EXPECT_TRUE(same(first, second));
  EXPECT_EQ(second.fds.size(), wire::kHelloDescriptors);
  EXPECT_FALSE(second.hang_up);
  EXPECT_EQ(core_->ledger().usage_of(1000).sessions, 3U);
}

TEST_F(Repeat, OfARefusalIsTheSameRefusalAndNoSecondRecord) {
  const auto request = import_of(std::string(64, 'A'));
  const Answer first = ask(kImporter, request);
  const auto written = records().size();
  EXPECT_TRUE(same(first, again(kImporter, request)));
  EXPECT_EQ(records().size(), written);
}

TEST_F(Repeat, OfImportGivesNothingOnceTheShareHasEnded) {
  const std::string key = export_block(mint(kExporter));
  ASSERT_TRUE(ok<wire::Import>(ask(kImporter, import_of(key))));
  const std::uint64_t asked = request_;
  ASSERT_TRUE(ok<wire::Withdraw>(ask(kExporter, wire::Withdraw{wire::key_text(key.c_str())})));
  request_ = asked;
  const Answer second = again(kImporter, import_of(key));
  EXPECT_EQ(refused<wire::Import>(second), Reason::kExportEnded);
  EXPECT_TRUE(second.fds.empty());
}

TEST_F(Repeat, OfAOneWayRequestIsSilence) {
  const BlockId block = mint(kExporter);
  EXPECT_FALSE(ask(kExporter, wire::Free{block}, wire::kOneWay).frame);
  const auto frame = wire::encode(wire::Kind::kFree, wire::kOneWay, request_, wire::Free{block});
  const auto written = records().size();
  const Answer second = core_->handle(kExporter, frame.view(), who(kExporter));
  EXPECT_FALSE(second.frame);
  EXPECT_FALSE(second.hang_up);
  EXPECT_EQ(records().size(), written) << "a second FREE would be recorded as a denial";
}

TEST_F(Repeat, OfANumberForSomethingElseIsOutOfOrder) {
  mint(kExporter);
  const Answer other = again(kExporter, wire::Stat{});
  EXPECT_EQ(refused<wire::Stat>(other), Reason::kOutOfOrder);
  EXPECT_TRUE(other.hang_up);
}

TEST_F(Repeat, OfAnEarlierRequestIsOutOfOrder) {
  const BlockId block = mint(kExporter);
  ask(kExporter, wire::Stat{});
  const auto frame = wire::encode(wire::Kind::kFree, 0, --request_, wire::Free{block});
  const Answer late = core_->handle(kExporter, frame.view(), who(kExporter));
  EXPECT_EQ(refused<wire::Free>(late), Reason::kOutOfOrder);
  EXPECT_TRUE(late.hang_up);
  EXPECT_EQ(core_->ledger().used(0), 4096U);
}

TEST_F(Broker, UsageIsForTheSameUser) {
  mint(kExporter);
  const auto mine = ok<wire::Usage>(ask(kImporter, wire::Usage{}));
  ASSERT_TRUE(mine);
  EXPECT_EQ(mine->session, kExporter);
  EXPECT_EQ(mine->pid, pid_of(kExporter));
  EXPECT_EQ(mine->charged, 4096U);
  const auto end = ok<wire::Usage>(
      ask(kImporter, wire::Usage{.session = mine->session, .device = mine->device}));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->session, 0U);

  // Another user's process is told of nobody.
  constexpr SessionId kOther = 7;
  const os::Credentials stranger{.pid = pid_of(kOther), .uid = 1001, .gid = 1001};
  os::PeerIdentity peer;
  peer.connected = stranger;
  peer.pidfs_inode = 5000 + kOther;
  peer.pidfd = std::move(*os::open_pidfd(::getpid()));
  ASSERT_FALSE(core_->open(kOther, std::move(peer)));
  const auto asked = [&](const auto& body) {
    using R = std::decay_t<decltype(body)>;
    const auto frame = wire::encode(wire::Protocol<R>::kKind, 0, ++request_, body);
    return ok<R>(core_->handle(kOther, frame.view(), stranger));
  };
  ASSERT_TRUE(asked(wire::Hello{}));
  const auto theirs = asked(wire::Usage{});
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->session, 0U);
}

TEST_F(Broker, WhatWasNotDeliveredIsTakenBack) {
  const std::string key = export_block(mint(kExporter));
  const Answer answer = ask(kImporter, import_of(key));
  ASSERT_EQ(answer.granted.size(), 1U);
  core_->undelivered(kImporter, answer);
  EXPECT_TRUE(core_->ledger().share_after(0)->holders.empty());
  EXPECT_EQ(records().back().type, audit::Type::kGrantUndelivered);
}

TEST_F(Broker, TheSameProcessAgainEndsItsOldSession) {
  mint(kExporter);
  os::PeerIdentity peer;
  peer.connected = who(kExporter);
  peer.pidfs_inode = 5000 + kExporter;
  peer.pidfd = std::move(*os::open_pidfd(::getpid()));
  ASSERT_FALSE(core_->open(3, std::move(peer)));
  const auto frame = wire::encode(wire::Kind::kHello, 0, ++request_, wire::Hello{});
  const Answer answer = core_->handle(3, frame.view(), who(kExporter));
  ASSERT_TRUE(ok<wire::Hello>(answer));
  EXPECT_EQ(core_->take_superseded(), std::vector<SessionId>{kExporter});
  EXPECT_EQ(core_->ledger().used(0), 0U);
}

TEST_F(Broker, NothingBeforeHello) {
  connect(4);
  const Answer answer = ask(4, wire::Stat{});
  EXPECT_EQ(refused<wire::Stat>(answer), Reason::kOutOfOrder);
  EXPECT_TRUE(answer.hang_up);
}

TEST_F(Broker, GarbageEndsTheConnectionAndIsRecorded) {
  const std::vector<std::byte> garbage(8, std::byte{0xa5});
  const Answer answer = core_->handle(kImporter, garbage, who(kImporter));
  EXPECT_TRUE(answer.hang_up);
  ASSERT_TRUE(answer.frame);
  EXPECT_TRUE(wire::decode_unnumbered(answer.frame->view())) << "there is no number to repeat";
  EXPECT_EQ(records().back().outcome, audit::Outcome::kDeny);
}

TEST_F(Broker, AFloodOfRefusalsIsCountedNotWritten) {
  constexpr int kFlood = 3000;
  for (int i = 0; i < kFlood; ++i)
    ask(kImporter, import_of(std::string(64, 'A')));
  core_->end(kImporter);
  std::uint64_t written = 0;
  std::uint64_t suppressed = 0;
  for (const audit::Record& record : records()) {
    if (record.type == audit::Type::kDeny) ++written;
    if (record.type == audit::Type::kSuppressed) suppressed += record.aux;
  }
  EXPECT_GE(written, 1000U);
  EXPECT_LT(written, 1500U);
  EXPECT_EQ(written + suppressed, static_cast<std::uint64_t>(kFlood));
}

// ---- Batches

TEST_F(Broker, ABatchGrantsWhatItsItemsWouldGetAlone) {
  const BlockId block = mint(kExporter, 8192);
  wire::Export second = whole(block);
  second.offset = 4096;
  wire::Export skewed = whole(block);
  skewed.offset = 64;
  const std::size_t before = records().size();
  const auto exported = ok<wire::Batch<wire::Export>>(
      ask(kExporter, wire::Batch<wire::Export>{{whole(block), skewed, second}}));
  ASSERT_TRUE(exported && exported->items.size() == 3);
  EXPECT_EQ(exported->items[1].refusal.reason, static_cast<std::uint16_t>(Reason::kNotAligned));
  EXPECT_EQ(records().size(), before + 3);

  const auto text = [&](std::size_t i) {
    const auto& key = exported->items[i].reply.key;
    return std::string(key.begin(), key.end());
  };
  Answer answer =
      ask(kImporter, wire::Batch<wire::Import>{{import_of(text(0)), import_of("none"),
                                                import_of(text(2)), import_of(text(0))}});
  const auto imported = ok<wire::Batch<wire::Import>>(answer);
  ASSERT_TRUE(imported && imported->items.size() == 4);
  EXPECT_EQ(imported->items[1].refusal.reason, static_cast<std::uint16_t>(Reason::kKeyMalformed));
  EXPECT_EQ(imported->items[2].reply.offset, 4096U);
  EXPECT_EQ(imported->items[3].reply.share, imported->items[0].reply.share);
  EXPECT_EQ(answer.fds.size(), 3U);
  EXPECT_EQ(answer.granted.size(), 2U) << "the repeat counts nothing";
  EXPECT_EQ(records().size(), before + 7);

  const auto closed = ok<wire::Batch<wire::Close>>(
      ask(kImporter, wire::Batch<wire::Close>{{{imported->items[0].reply.share},
                                               {imported->items[0].reply.share},
                                               {imported->items[2].reply.share}}}));
  ASSERT_TRUE(closed && closed->items.size() == 3);
  EXPECT_EQ(closed->items[0].refusal.reason, 0);
  EXPECT_EQ(closed->items[1].refusal.reason, static_cast<std::uint16_t>(Reason::kNotImported));
  EXPECT_EQ(closed->items[2].refusal.reason, 0);
}

TEST_F(Broker, ABatchThatIsNotDeliveredIsTakenBackWhole) {
  const BlockId block = mint(kExporter);
  const std::string one = export_block(block);
  const std::string two = export_block(block);
  const Answer answer = ask(kImporter, wire::Batch<wire::Import>{{import_of(one), import_of(two)}});
  core_->undelivered(kImporter, answer);
  for (const Share* share = core_->ledger().share_after(0); share != nullptr;
       share = core_->ledger().share_after(share->id)) {
    EXPECT_TRUE(share->holders.empty());
  }
}

// ---- Agents

// As Broker, with an agent connection for each session: 11 for 1, 12 for 2.
class Agents : public Broker {
 protected:
  static constexpr SessionId agent_of(SessionId id) { return 10 + id; }

  void SetUp() override {
    Broker::SetUp();
    // join() keeps no reply: these two say HELLO again, from new connections of the same processes.
    for (const SessionId id : {kExporter, kImporter}) {
      core_->end(id);
      connect(id);
      const auto reply = ok<wire::Hello>(ask(id, wire::Hello{}));
      ASSERT_TRUE(reply);
      secrets_[id] = reply->secret;
      ASSERT_TRUE(ok<wire::Attach>(attach(id, agent_of(id))));
    }
    core_->take_superseded();
    core_->take_tellings();
  }
  void connect_agent(SessionId id, SessionId agent) {
    os::PeerIdentity peer;
    peer.connected = who(id);
    peer.pidfs_inode = 5000 + id;
    peer.pidfd = std::move(*os::open_pidfd(::getpid()));
    ASSERT_FALSE(core_->open(agent, std::move(peer)));
  }
  template <class R>
  Answer ask_as(SessionId connection, SessionId process, const R& request) {
    const auto frame = wire::encode(wire::Protocol<R>::kKind, 0, ++request_, request);
    return core_->handle(connection, frame.view(), who(process));
  }
  Answer attach(SessionId id, SessionId agent) {
    connect_agent(id, agent);
    return ask_as(agent, id, wire::Attach{.session = id, .secret = secrets_[id]});
  }
  std::optional<wire::ListReply> watch(SessionId id, const std::string& key) {
    return ok<wire::Watch>(
        ask(id, wire::Watch{.key = wire::key_text(key.c_str()), .mode = wire::WatchMode::kStart}));
  }
  // What the agents were told since the last call.
  struct Told {
    SessionId agent;
    wire::EventKind what;
    friend bool operator==(const Told&, const Told&) = default;
  };
  std::vector<Told> told() {
    std::vector<Told> events;
    for (const Core::Telling& telling : core_->take_tellings()) {
      const auto event = wire::decode_event(telling.frame.view());
      if (event) events.push_back({telling.agent, static_cast<wire::EventKind>(event->what)});
    }
    return events;
  }

  std::map<SessionId, std::array<std::uint8_t, 16>> secrets_;
};

using Kind = wire::EventKind;

TEST_F(Agents, AreToldOfWhatTheirSessionWatches) {
  const BlockId block = mint(kExporter);
  const std::string key = export_block(block);
  const auto before = watch(kExporter, key);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->importers, 0U);
  EXPECT_EQ(before->state, wire::ShareState::kLive);

  const auto import = ok<wire::Import>(ask(kImporter, import_of(key)));
  ASSERT_TRUE(import);
  EXPECT_EQ(told(), (std::vector<Told>{{11, Kind::kImported}}));
  ASSERT_TRUE(watch(kImporter, key));
  ask(kImporter, import_of(key));
  EXPECT_TRUE(told().empty()) << "an import again is no import more";

  ask(kImporter, wire::Close{import->share});
  EXPECT_EQ(told(),
            (std::vector<Told>{{11, Kind::kLastImporterLeft}, {12, Kind::kLastImporterLeft}}));
  // Who has let go hears no more.
  ask(kExporter, wire::Withdraw{wire::key_text(key.c_str())});
  EXPECT_EQ(told(), (std::vector<Told>{{11, Kind::kExportEnded}}));
}

TEST_F(Agents, HearOnlyWhileTheirSessionWants) {
  const std::string key = export_block(mint(kExporter));
  const auto asked = ok<wire::Watch>(ask(kExporter, wire::Watch{wire::key_text(key.c_str())}));
  ASSERT_TRUE(asked);
  const auto import_and_close = [&] {
    const auto import = ok<wire::Import>(ask(kImporter, import_of(key)));
    ask(kImporter, wire::Close{import->share});
  };
  import_and_close();
  EXPECT_TRUE(told().empty()) << "asking is not watching";
  // By its number, without the key.
  const wire::Watch by_number{.share = asked->share, .mode = wire::WatchMode::kStart};
  EXPECT_TRUE(ok<wire::Watch>(ask(kExporter, by_number)));
  import_and_close();
  EXPECT_EQ(told().size(), 2U);
  const wire::Watch stop{.share = asked->share, .mode = wire::WatchMode::kStop};
  EXPECT_TRUE(ok<wire::Watch>(ask(kExporter, stop)));
  import_and_close();
  EXPECT_TRUE(told().empty());
  // The number opens nothing for others, and nothing that is over.
  EXPECT_EQ(refused<wire::Watch>(ask(kImporter, by_number)), Reason::kNotImported);
  EXPECT_EQ(refused<wire::Watch>(ask(kExporter, wire::Watch{.share = 4711})), Reason::kExportEnded);
}

TEST_F(Agents, OfImportersAreToldHowAnExportEnded) {
  const BlockId block = mint(kExporter);
  const std::string freed = export_block(block);
  const std::string orphaned = export_block(mint(kExporter));
  for (const std::string& key : {freed, orphaned}) {
    ask(kImporter, import_of(key));
    ASSERT_TRUE(watch(kImporter, key));
  }
  ask(kExporter, wire::Free{block});
  EXPECT_EQ(told(), (std::vector<Told>{{12, Kind::kExportEnded}}));
  core_->end(kExporter);
  EXPECT_EQ(told(), (std::vector<Told>{{12, Kind::kExporterGone}}));
  // It can still ask how things are.
  const auto now = watch(kImporter, orphaned);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->state, wire::ShareState::kExporterGone);
  EXPECT_EQ(now->importers, 1U);
}

TEST_F(Agents, AreNotToldOfGrantsThatWereTakenBack) {
  const std::string key = export_block(mint(kExporter));
  ASSERT_TRUE(watch(kExporter, key));
  const Answer answer = ask(kImporter, import_of(key));
  core_->undelivered(kImporter, answer);
  EXPECT_EQ(told(), (std::vector<Told>{{11, Kind::kImported}, {11, Kind::kLastImporterLeft}}));
}

TEST_F(Agents, OnlyTheExporterAndImportersMayWatchAndNothingIsRecorded) {
  const std::string key = export_block(mint(kExporter));
  const std::size_t before = records().size();
  const wire::Watch request{.key = wire::key_text(key.c_str())};
  EXPECT_EQ(refused<wire::Watch>(ask(kImporter, request)), Reason::kNotImported);
  EXPECT_EQ(refused<wire::Watch>(ask(kImporter, wire::Watch{.key = wire::key_text("no key")})),
            Reason::kKeyMalformed);
  ASSERT_TRUE(watch(kExporter, key));
  EXPECT_EQ(records().size(), before);
}

TEST_F(Agents, NeedTheSecretAndTheProcess) {
  auto wrong = secrets_[kExporter];
  wrong[15] ^= 1;
  connect_agent(kExporter, 21);
  Answer answer = ask_as(21, kExporter, wire::Attach{.session = kExporter, .secret = wrong});
  EXPECT_EQ(refused<wire::Attach>(answer), Reason::kOutOfOrder);
  EXPECT_TRUE(answer.hang_up);
  // Another process that knows it, and a session that does not exist.
  connect_agent(kImporter, 22);
  const wire::Attach stolen{.session = kExporter, .secret = secrets_[kExporter]};
  EXPECT_TRUE(ask_as(22, kImporter, stolen).hang_up);
  connect_agent(kExporter, 23);
  EXPECT_TRUE(
      ask_as(23, kExporter, wire::Attach{.session = 99, .secret = secrets_[kExporter]}).hang_up);
  EXPECT_EQ(records().back().reason, Reason::kOutOfOrder);
  EXPECT_TRUE(core_->take_superseded().empty()) << "the right agent was let go";
}

TEST_F(Agents, OnlyListen) {
  const wire::Attach again{.session = kExporter, .secret = secrets_[kExporter]};
  EXPECT_TRUE(ask_as(11, kExporter, again).hang_up);
  EXPECT_TRUE(ask_as(11, kExporter, wire::Hello{}).hang_up);
  EXPECT_TRUE(ask_as(11, kExporter, wire::Stat{}).hang_up);
  // Nor may a session that has said HELLO become one.
  const Answer answer = ask(kExporter, again);
  EXPECT_EQ(refused<wire::Attach>(answer), Reason::kOutOfOrder);
}

TEST_F(Agents, ANewOneReplacesTheOldAndNoneIsNoFault) {
  const std::string key = export_block(mint(kExporter));
  ASSERT_TRUE(watch(kExporter, key));
  ASSERT_TRUE(ok<wire::Attach>(attach(kExporter, 31)));
  EXPECT_EQ(core_->take_superseded(), std::vector<SessionId>{11});
  core_->end(11);
  const auto import = ok<wire::Import>(ask(kImporter, import_of(key)));
  EXPECT_EQ(told(), (std::vector<Told>{{31, Kind::kImported}}));
  core_->end(31);
  ask(kImporter, wire::Close{import->share});
  EXPECT_TRUE(told().empty());
}

// ---- RETURN

class Shortage : public Agents {
 protected:
  static wire::Mint mint_of(std::uint64_t size) {
    wire::Mint mint{};
    mint.count = 1;
    mint.specs[0] = {.size = size, .page = 4096};
    return mint;
  }
  void SetUp() override {
    Agents::SetUp();
    kept = mint(kImporter, kMiB - 4096);
  }

  BlockId kept = 0;  // Leaves one page of the device.
};

TEST_F(Shortage, AsksTheOthersAndAnswersAsSoonAsItFits) {
  const Answer answer = ask(kExporter, mint_of(8192));
  const std::uint64_t number = request_;
  EXPECT_TRUE(answer.later);
  EXPECT_FALSE(answer.frame);
  EXPECT_EQ(told(), (std::vector<Told>{{12, Kind::kReturn}}));
  EXPECT_TRUE(core_->next_due_in());
  EXPECT_TRUE(core_->take_ready().empty());

  ask(kImporter, wire::Free{kept});
  auto ready = core_->take_ready();
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].first, kExporter);
  EXPECT_EQ(ready[0].second.fds.size(), 1U);
  ASSERT_TRUE(ready[0].second.frame);
  const auto reply = wire::decode_reply<wire::Mint>(ready[0].second.frame->view(), number);
  ASSERT_TRUE(reply && std::holds_alternative<wire::MintReply>(*reply));
  EXPECT_EQ(core_->ledger().used(0), 8192U);
  EXPECT_FALSE(core_->next_due_in());
}

TEST_F(Shortage, RefusesWhenNothingCameBackInTime) {
  ask(kExporter, mint_of(8192));
  const std::uint64_t number = request_;
  std::vector<std::pair<SessionId, Answer>> ready;
  while (ready.empty())
    ready = core_->take_ready();
  request_ = number;
  EXPECT_EQ(refused<wire::Mint>(ready[0].second), Reason::kCapacity);
  EXPECT_TRUE(ready[0].second.fds.empty());
}

TEST_F(Shortage, WaitsForNobodyWhereNobodyCanHelp) {
  // More than there is; and when the only one to ask is the asker.
  EXPECT_EQ(refused<wire::Mint>(ask(kExporter, mint_of(2 * kMiB))), Reason::kCapacity);
  core_->end(agent_of(kImporter));
  EXPECT_EQ(refused<wire::Mint>(ask(kExporter, mint_of(8192))), Reason::kCapacity);
  EXPECT_TRUE(told().empty());
}

TEST_F(Shortage, IsForgottenWithWhoAsked) {
  EXPECT_TRUE(ask(kExporter, mint_of(8192)).later);
  core_->end(kExporter);
  ask(kImporter, wire::Free{kept});
  EXPECT_TRUE(core_->take_ready().empty());
  EXPECT_EQ(core_->ledger().used(0), 0U);
}

TEST_F(Shortage, LetsALimitedNumberWaitAndAsksNobodyTwiceAtOnce) {
  constexpr SessionId kFirst = 100;
  constexpr std::size_t kLimit = 64;
  for (SessionId id = kFirst; id <= kFirst + kLimit; ++id)
    join(id);
  std::size_t waiting = 0;
  for (SessionId id = kFirst; id <= kFirst + kLimit; ++id) {
    if (ask(id, mint_of(8192)).later) ++waiting;
  }
  EXPECT_EQ(waiting, kLimit);
  EXPECT_EQ(told().size(), 2U) << "one for each of the two agents";
}

TEST_F(Agents, EndWithTheirSession) {
  core_->end(kExporter);
  EXPECT_EQ(core_->take_superseded(), std::vector<SessionId>{11});
}

TEST_F(Broker, ListShowsTheUsersOwnShares) {
  export_block(mint(kExporter));
  export_block(mint(kExporter));
  std::uint64_t after = 0;
  int found = 0;
  for (;;) {
    const auto reply = ok<wire::List>(ask(kImporter, wire::List{after}));
    ASSERT_TRUE(reply);
    if (reply->share == 0) break;
    EXPECT_EQ(reply->owner_pid, pid_of(kExporter));
    after = reply->share;
    ++found;
  }
  EXPECT_EQ(found, 2);
}

// ---- Shareable handles ----

class Handles : public Broker {
 protected:
  std::optional<wire::ExportHandleReply> export_handle(BlockId block,
                                                       std::uint32_t flags = wire::kAnyProcess) {
    return ok<wire::ExportHandle>(
        ask(kExporter, wire::ExportHandle{.block = block, .flags = flags, .reserved = 0}));
  }
  static std::string sealed(const wire::ExportHandleReply& handle) {
    return {handle.key.begin(), handle.key.end()};
  }
  static wire::Import by(const wire::KeyText& name, std::uint32_t access = 0) {
    return {.key = name, .access = access, .flags = 0};
  }
};

TEST_F(Handles, TokenAndFabricHandleNameTheSameMemory) {
  const auto handle = export_handle(mint(kExporter, 8192));
  ASSERT_TRUE(handle);
  for (const wire::KeyText& name :
       {wire::text_of_token(handle->token), wire::text_of_fabric(sealed(*handle))}) {
    Answer answer = ask(kImporter, by(name));
    const auto reply = ok<wire::Import>(answer);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->share, handle->share);
    EXPECT_EQ(reply->size, 8192U) << "the whole block";
    EXPECT_EQ(reply->public_id, handle->public_id);
    ASSERT_EQ(answer.fds.size(), 1U);
    char text[6] = {};
    ASSERT_EQ(::pread(answer.fds[0].get(), text, 5, 0), 5);
    EXPECT_STREQ(text, "bytes");
  }
  EXPECT_EQ(core_->ledger().share_after(0)->holders.size(), 1U) << "one hold for each process";
}

TEST_F(Handles, OpenNothingButHandlesAndKeysNothingButKeys) {
  const auto handle = export_handle(mint(kExporter));
  const std::string key = export_block(mint(kExporter));
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, import_of(sealed(*handle)))), Reason::kKeyUnknown);
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, by(wire::text_of_fabric(key)))),
            Reason::kHandleUnknown);
}

TEST_F(Handles, AGuessIsRefusedAndRecordedWithoutTheToken) {
  const auto handle = export_handle(mint(kExporter));
  const std::uint64_t guess = handle->token ^ 1;
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, by(wire::text_of_token(guess)))),
            Reason::kHandleUnknown);
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, by(wire::text_of_token(0)))),
            Reason::kHandleUnknown);
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, by(wire::text_of_fabric({})))),
            Reason::kHandleUnknown);
  ASSERT_TRUE(ok<wire::Import>(ask(kImporter, by(wire::text_of_token(handle->token)))));
  int guesses = 0;
  for (const audit::Record& record : records()) {
    if (record.reason == Reason::kHandleUnknown) {
      ++guesses;
      EXPECT_EQ(record.type, audit::Type::kDeny);
      EXPECT_EQ(record.acl_code, 107017);
    }
    std::array<std::byte, sizeof(record)> bytes{};
    std::memcpy(bytes.data(), &record, sizeof(record));
    for (const std::uint64_t secret : {guess, handle->token}) {
      const auto raw = std::bit_cast<std::array<std::byte, 8>>(secret);
      EXPECT_EQ(std::search(bytes.begin(), bytes.end(), raw.begin(), raw.end()), bytes.end())
          << "a token in a record";
    }
  }
  EXPECT_EQ(guesses, 3);
}

TEST_F(Handles, GuessesBeyondTheBudgetAreCountedTogether) {
  constexpr int kGuesses = 1500;
  for (int i = 1; i <= kGuesses; ++i)
    (void)ask(kImporter, by(wire::text_of_token(static_cast<std::uint64_t>(i))));
  core_->end(kImporter);
  std::uint64_t written = 0;
  std::uint64_t suppressed = 0;
  for (const audit::Record& record : records()) {
    written += record.reason == Reason::kHandleUnknown ? 1U : 0U;
    suppressed += record.type == audit::Type::kSuppressed ? record.aux : 0U;
  }
  EXPECT_EQ(written + suppressed, std::uint64_t{kGuesses});
  EXPECT_GT(suppressed, 0U);
}

TEST_F(Handles, EveryGrantIsRecordedAsAHandles) {
  const auto handle = export_handle(mint(kExporter));
  ASSERT_TRUE(ok<wire::Import>(ask(kImporter, by(wire::text_of_token(handle->token)))));
  const auto found = records();
  ASSERT_GE(found.size(), 2U);
  for (std::size_t i = found.size() - 2; i < found.size(); ++i) {
    EXPECT_EQ(found[i].flags & kRecordHandle, kRecordHandle);
    EXPECT_EQ(std::memcmp(found[i].key_id.data(), handle->public_id.data(), 16), 0);
  }
  EXPECT_EQ(found[found.size() - 2].type, audit::Type::kExport);
  EXPECT_EQ(found.back().type, audit::Type::kImport);
}

TEST_F(Handles, ABlockHasOneAtATime) {
  const BlockId block = mint(kExporter);
  const auto first = export_handle(block);
  ASSERT_TRUE(first);
  const auto again = [&] {
    return ask(kExporter, wire::ExportHandle{.block = block, .flags = 1, .reserved = 0});
  };
  EXPECT_EQ(refused<wire::ExportHandle>(again()), Reason::kHandleExists);
  EXPECT_FALSE(export_block(block).empty()) << "a key is something else";
  ASSERT_TRUE(
      ok<wire::Withdraw>(ask(kExporter, wire::Withdraw{wire::text_of_token(first->token)})));
  const auto second = ok<wire::ExportHandle>(again());
  ASSERT_TRUE(second);
  EXPECT_NE(second->token, first->token);
}

TEST_F(Handles, DieWithTheirExportAndImportersKeepTheMemory) {
  for (const bool freed : {false, true}) {
    const BlockId block = mint(kExporter);
    const auto handle = export_handle(block);
    const wire::KeyText token = wire::text_of_token(handle->token);
    const wire::KeyText fabric = wire::text_of_fabric(sealed(*handle));
    Answer answer = ask(kImporter, by(token));
    const auto grant = ok<wire::Import>(answer);
    ASSERT_TRUE(grant);
    if (freed) {
      ASSERT_TRUE(ok<wire::Free>(ask(kExporter, wire::Free{block})));
    } else {
      ASSERT_TRUE(ok<wire::Withdraw>(ask(kExporter, wire::Withdraw{fabric})));
    }
    EXPECT_EQ(refused<wire::Import>(ask(kImporter, by(token))), Reason::kHandleUnknown);
    EXPECT_EQ(refused<wire::Import>(ask(kImporter, by(fabric))), Reason::kHandleUnknown);
    char text[6] = {};
    ASSERT_EQ(::pread(answer.fds[0].get(), text, 5, 0), 5);
    EXPECT_STREQ(text, "bytes");
    EXPECT_EQ(core_->ledger().all_blocks().at(block).held, 1U);
    EXPECT_TRUE(ok<wire::Close>(ask(kImporter, wire::Close{grant->share})));
  }
}

TEST_F(Handles, TheListIsTheExportersToEdit) {
  const auto handle = export_handle(mint(kExporter), 0);
  const wire::KeyText token = wire::text_of_token(handle->token);
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, by(token))), Reason::kNotListed);
  const wire::ListProcess list{.key = token, .pidfs_inode = 5000 + kImporter};
  EXPECT_EQ(refused<wire::ListProcess>(ask(kImporter, list)), Reason::kNotExporter);
  ASSERT_TRUE(ok<wire::ListProcess>(ask(kExporter, list)));
  EXPECT_TRUE(ok<wire::Import>(ask(kImporter, by(token))));

  const auto open = export_handle(mint(kExporter));
  EXPECT_EQ(refused<wire::ListProcess>(
                ask(kExporter, wire::ListProcess{.key = wire::text_of_token(open->token),
                                                 .pidfs_inode = 5000 + kImporter})),
            Reason::kListDisabled);
  EXPECT_EQ(refused<wire::ListProcess>(
                ask(kExporter, wire::ListProcess{.key = wire::text_of_token(open->token ^ 2),
                                                 .pidfs_inode = 5000 + kImporter})),
            Reason::kHandleUnknown);
}

TEST_F(Handles, AReadOnlyOneIsReadOnlyByTheKernel) {
  const auto handle = export_handle(mint(kExporter), wire::kAnyProcess | wire::kReadOnly);
  const wire::KeyText token = wire::text_of_token(handle->token);
  EXPECT_EQ(refused<wire::Import>(ask(kImporter, by(token, 3))), Reason::kReadOnlyExport);
  Answer answer = ask(kImporter, by(token));
  EXPECT_EQ(ok<wire::Import>(answer)->access, static_cast<std::uint32_t>(Access::kReadOnly));
  EXPECT_NE(::fcntl(answer.fds[0].get(), F_GET_SEALS) & 0x10, 0) << "F_SEAL_FUTURE_WRITE";
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, answer.fds[0].get(), 0),
            MAP_FAILED);
}

// ---- Sparse blocks ----

class Sparse : public Broker {
 protected:
  static constexpr std::uint64_t kUnit = wire::kChargeUnit;

  void SetUp() override {
    capacity_ = 8 * kUnit;
    Broker::SetUp();
  }
  Answer mint_sparse(SessionId id, std::uint64_t size) {
    wire::Mint mint{};
    mint.count = 1;
    mint.specs[0] = {.size = size, .page = 4096, .flags = wire::kSparse};
    Answer answer = ask(id, mint);
    if (!answer.fds.empty()) pool_ = std::move(answer.fds[0]);
    return answer;
  }
  Answer charge(SessionId id, BlockId block, std::uint64_t units) {
    return ask(id, wire::Charge{.block = block, .bytes = units * kUnit});
  }
  std::uint64_t used() { return core_->ledger().used(0) / kUnit; }

  UniqueFd pool_;
};

TEST_F(Sparse, AreChargedWhatTheirOwnersSay) {
  const auto minted = ok<wire::Mint>(mint_sparse(kExporter, 8 * kUnit));
  ASSERT_TRUE(minted);
  const BlockId block = minted->blocks[0];
  EXPECT_EQ(used(), 0U);
  ASSERT_TRUE(ok<wire::Charge>(charge(kExporter, block, 5)));
  EXPECT_EQ(used(), 5U);
  EXPECT_EQ(ok<wire::Stat>(ask(kExporter, wire::Stat{}))->used_here, 5 * kUnit);
  ASSERT_TRUE(ok<wire::Charge>(charge(kExporter, block, 2)));
  EXPECT_EQ(used(), 2U);
  ASSERT_TRUE(ok<wire::Free>(ask(kExporter, wire::Free{block})));
  EXPECT_EQ(used(), 0U);
}

TEST_F(Sparse, AreChargedNoMoreThanTheDeviceHas) {
  const BlockId first = ok<wire::Mint>(mint_sparse(kExporter, 8 * kUnit))->blocks[0];
  const BlockId second = ok<wire::Mint>(mint_sparse(kExporter, 8 * kUnit))->blocks[0];
  ASSERT_TRUE(ok<wire::Charge>(charge(kExporter, first, 6)));
  EXPECT_EQ(refused<wire::Charge>(charge(kExporter, second, 3)), Reason::kCapacity);
  EXPECT_EQ(used(), 6U);
  EXPECT_TRUE(ok<wire::Charge>(charge(kExporter, second, 2)));
  EXPECT_EQ(mint(kExporter), 0U) << "the device is full";
  EXPECT_TRUE(ok<wire::Charge>(charge(kExporter, first, 1))) << "less is never refused";
}

TEST_F(Sparse, AreWithinTheDeviceAndWithinThemselves) {
  EXPECT_EQ(refused<wire::Mint>(mint_sparse(kExporter, 9 * kUnit)), Reason::kSizeTooLarge);
  const BlockId block = ok<wire::Mint>(mint_sparse(kExporter, 2 * kUnit))->blocks[0];
  EXPECT_EQ(refused<wire::Charge>(charge(kExporter, block, 3)), Reason::kBadCharge);
  EXPECT_EQ(refused<wire::Charge>(charge(kImporter, block, 1)), Reason::kUnknownBlock);
  EXPECT_EQ(refused<wire::Charge>(charge(kExporter, mint(kExporter), 0)), Reason::kBadCharge)
      << "another block is charged by its size";
}

TEST_F(Sparse, AreChargedWhatTheFileHasWhenThatIsMore) {
  const BlockId block = ok<wire::Mint>(mint_sparse(kExporter, 8 * kUnit))->blocks[0];
  const std::vector<char> bytes(kUnit + 1, 'x');
  ASSERT_EQ(::pwrite(pool_.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  EXPECT_EQ(ok<wire::Charge>(charge(kExporter, block, 0))->charged, 2 * kUnit);
  EXPECT_EQ(used(), 2U);
}

TEST_F(Sparse, NeedNotBeCommittedToBeExported) {
  const BlockId block = ok<wire::Mint>(mint_sparse(kExporter, 8 * kUnit))->blocks[0];
  const auto handle = ok<wire::ExportHandle>(ask(
      kExporter, wire::ExportHandle{.block = block, .flags = wire::kAnyProcess, .reserved = 0}));
  ASSERT_TRUE(handle);
  Answer answer = ask(kImporter, wire::Import{.key = wire::text_of_token(handle->token)});
  EXPECT_EQ(ok<wire::Import>(answer)->size, 8 * kUnit);
}

TEST_F(Sparse, EndThePartThatIsUsedForSomethingElse) {
  const BlockId block = ok<wire::Mint>(mint_sparse(kExporter, 8 * kUnit))->blocks[0];
  const auto part = [&](std::uint64_t offset, std::uint64_t size) {
    const auto reply = ok<wire::Export>(ask(kExporter, wire::Export{.block = block,
                                                                    .offset = offset,
                                                                    .size = size,
                                                                    .reported_size = 8 * kUnit,
                                                                    .flags = wire::kAnyProcess}));
    return std::string(reply->key.begin(), reply->key.end());
  };
  const std::string before = part(0, 4096);
  const std::string first = part(4096, 4096);
  const std::string across = part(4096, 12288);
  const std::string second = part(8192, 100);
  const std::string behind = part(12288, 4096);
  EXPECT_EQ(refused<wire::EndRange>(
                ask(kImporter, wire::EndRange{.block = block, .offset = 4096, .size = 8192})),
            Reason::kUnknownBlock);
  ASSERT_TRUE(ok<wire::EndRange>(
      ask(kExporter, wire::EndRange{.block = block, .offset = 4096, .size = 8192})));
  for (const std::string& dead : {first, second}) {
    EXPECT_EQ(refused<wire::Import>(ask(kImporter, import_of(dead))), Reason::kExportEnded);
  }
  for (const std::string& alive : {before, across, behind}) {
    EXPECT_TRUE(ok<wire::Import>(ask(kImporter, import_of(alive))));
  }
}

TEST_F(Broker, RecordsByWhichKeyMemoryCameThatIsTriedToBeExportedAgain) {
  const auto reply = ok<wire::Export>(ask(kExporter, whole(mint(kExporter))));
  ASSERT_TRUE(reply);
  const std::string key(reply->key.begin(), reply->key.end());
  const auto tried = [&] {
    (void)ask(kImporter, wire::Report{.reason = static_cast<std::uint32_t>(Reason::kImportedMemory),
                                      .reserved = 0,
                                      .address = reply->share,
                                      .size = 77});
    return records().back();
  };
  EXPECT_EQ(tried().share_id, 0U) << "who does not hold it learns nothing of it";
  ASSERT_TRUE(ok<wire::Import>(ask(kImporter, import_of(key))));
  const audit::Record record = tried();
  EXPECT_EQ(record.type, audit::Type::kDeny);
  EXPECT_EQ(record.reason, Reason::kImportedMemory);
  EXPECT_EQ(record.actor.pid, static_cast<std::uint32_t>(pid_of(kImporter)));
  EXPECT_EQ(record.owner.pid, static_cast<std::uint32_t>(pid_of(kExporter)));
  EXPECT_EQ(record.share_id, reply->share);
  EXPECT_EQ(std::memcmp(record.key_id.data(), reply->public_id.data(), 16), 0);
  EXPECT_EQ(record.flags & kRecordClientClaim, kRecordClientClaim);
}

// The exporter's group may import from a system's broker: whole blocks, and read-only.
TEST_F(Sparse, GoToAnotherUserWholeOrNotAtAll) {
  core_ = std::make_unique<Core>(
      CoreOptions{.mode = policy::BrokerMode::kSystem, .devices = 2, .device_capacity = capacity_},
      std::move(*KeySeal::make()), std::move(*os::PublishedMemory::make("life", 4096)), *log_,
      *committer_, *reaper_);
  request_ = 0;
  join(kExporter);
  os::PeerIdentity member;
  member.connected = {.pid = 77, .uid = 2000, .gid = 2000};
  member.groups = {1000};
  member.pidfs_inode = 7000;
  member.pidfd = std::move(*os::open_pidfd(::getpid()));
  ASSERT_FALSE(core_->open(kImporter, std::move(member)));
  const auto ask_member = [&]<class R>(const R& request) {
    const auto frame = wire::encode(wire::Protocol<R>::kKind, 0, ++request_, request);
    return core_->handle(kImporter, frame.view(), {.pid = 77, .uid = 2000, .gid = 2000});
  };
  ASSERT_TRUE(ok<wire::Hello>(ask_member(wire::Hello{})));
  const BlockId block = ok<wire::Mint>(mint_sparse(kExporter, 8 * kUnit))->blocks[0];
  const auto part = ok<wire::Export>(ask(
      kExporter,
      wire::Export{.block = block, .offset = 0, .size = 4096, .reported_size = 4096, .flags = 1}));
  const std::string key(part->key.begin(), part->key.end());
  const Answer refusal = ask_member(import_of(key));
  EXPECT_EQ(refused<wire::Import>(refusal), Reason::kPartOfBlock);
  EXPECT_TRUE(refusal.fds.empty());
  EXPECT_EQ(records().back().reason, Reason::kPartOfBlock);
  const auto handle = ok<wire::ExportHandle>(
      ask(kExporter, wire::ExportHandle{.block = block, .flags = wire::kAnyProcess}));
  const Answer granted = ask_member(wire::Import{.key = wire::text_of_token(handle->token)});
  EXPECT_EQ(ok<wire::Import>(granted)->access, static_cast<std::uint32_t>(Access::kReadOnly));
}

class SparseShortage : public Agents {
 protected:
  void SetUp() override {
    capacity_ = 8 * wire::kChargeUnit;
    Agents::SetUp();
  }
};

TEST_F(SparseShortage, GrowingWaitsForWhatOthersGiveBack) {
  wire::Mint mint{};
  mint.count = 1;
  mint.specs[0] = {.size = capacity_, .page = 4096, .flags = wire::kSparse};
  const BlockId mine = ok<wire::Mint>(ask(kExporter, mint))->blocks[0];
  const BlockId others = ok<wire::Mint>(ask(kImporter, mint))->blocks[0];
  ASSERT_TRUE(ok<wire::Charge>(ask(kImporter, wire::Charge{.block = others, .bytes = capacity_})));
  EXPECT_TRUE(ask(kExporter, wire::Charge{.block = mine, .bytes = capacity_ / 2}).later);
  const std::uint64_t asked = request_;
  EXPECT_EQ(told(), (std::vector<Told>{{12, Kind::kReturn}}));
  EXPECT_TRUE(core_->take_ready().empty());
  ASSERT_TRUE(
      ok<wire::Charge>(ask(kImporter, wire::Charge{.block = others, .bytes = capacity_ / 2})));
  auto ready = core_->take_ready();
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].first, kExporter);
  const auto reply = wire::decode_reply<wire::Charge>(ready[0].second.frame->view(), asked);
  ASSERT_TRUE(reply && std::holds_alternative<wire::ChargeReply>(*reply));
  EXPECT_EQ(core_->ledger().used(0), capacity_);
}

}  // namespace
}  // namespace hufu::broker
