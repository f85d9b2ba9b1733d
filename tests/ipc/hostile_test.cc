// Peers that say what no client says, or say it and do not listen.

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/units.h"
#include "os/reported.h"
#include "support/audit_reader.h"
#include "support/probe.h"
#include "support/test_broker.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kPage = 4 * kKiB;

std::vector<std::byte> bytes_of(const wire::Frame& frame) {
  return {frame.view().begin(), frame.view().end()};
}

struct BadFrame {
  std::string name;
  std::vector<std::byte> bytes;
};

std::vector<BadFrame> bad_frames() {
  const auto stat = [](const std::function<void(wire::Header&)>& spoil) {
    auto bytes = bytes_of(wire::encode(wire::Kind::kStat, 0, 7, wire::Stat{}));
    wire::Header header{};
    std::memcpy(&header, bytes.data(), sizeof(header));
    spoil(header);
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
  };
  const auto mint = [](std::uint32_t specs, std::uint64_t size, std::uint32_t page) {
    wire::Mint body{.count = specs};
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(specs, wire::kMaxMint); ++i)
      body.specs[i] = {.size = size, .page = page};
    return bytes_of(wire::encode(wire::Kind::kMint, 0, 7, body));
  };
  std::vector<std::byte> longer = stat([](wire::Header& header) { header.size += 8; });
  longer.resize(longer.size() + 8);
  return {
      {"OneByte", std::vector<std::byte>(1)},
      {"HeaderCutShort", std::vector<std::byte>(sizeof(wire::Header) - 1)},
      {"AllZeros", std::vector<std::byte>(wire::kMaxMessage)},
      {"AllOnes", std::vector<std::byte>(wire::kMaxMessage, std::byte{0xff})},
      {"OneByteTooLong", std::vector<std::byte>(wire::kMaxMessage + 1)},
      {"MuchTooLong", std::vector<std::byte>(64 * kKiB)},
      {"OtherVersion", stat([](wire::Header& header) { header.version = 2; })},
      {"UnknownKind", stat([](wire::Header& header) { header.kind = 999; })},
      {"LiesAboutItsSize", stat([](wire::Header& header) { header.size += 1; })},
      {"BodyTooLong", longer},
      {"RequestNumberZero", stat([](wire::Header& header) { header.request = 0; })},
      {"ClaimsToBeAReply", stat([](wire::Header& header) { header.flags = wire::kReply; })},
      {"OneWayWhereNotAllowed", stat([](wire::Header& header) { header.flags = wire::kOneWay; })},
      {"MintOfNothing", mint(0, 0, 0)},
      {"MintOfTooMany", mint(wire::kMaxMint + 1, kPage, 4096)},
      {"MintOfNoPageSize", mint(1, kPage, 8192)},
      {"MintOfHalfAPage", mint(1, kPage / 2, 4096)},
      {"ExportWithUnknownFlags",
       bytes_of(wire::encode(wire::Kind::kExport, 0, 7, wire::Export{.flags = 0x80}))},
      {"ReservedBytesInUse",
       bytes_of(wire::encode(wire::Kind::kStat, 0, 7, wire::Stat{.reserved = 1}))},
      {"ListOfTooMany", bytes_of(wire::encode(wire::Kind::kListPid, 0, 7,
                                              wire::ListPid{.count = wire::kMaxListPids + 1}))},
      {"SecondHello", bytes_of(wire::encode(wire::Kind::kHello, 0, 7, wire::Hello{}))},
  };
}

TEST(Malformed, EndsThatConnectionAndNoOther) {
  TestBroker broker;
  broker.start();
  WirePeer bystander(broker.helper("wire"));
  bystander.must("hello");
  const auto made = bystander.share_block(kPage, 1);
  for (const BadFrame& frame : bad_frames()) {
    SCOPED_TRACE(frame.name);
    WireClient client(broker.socket());
    ASSERT_TRUE(client.ask(wire::Hello{}).body);
    ASSERT_TRUE(client.send_bytes(frame.bytes));
    // A refusal may come before the end.
    std::vector<UniqueFd> fds;
    if (!client.receive_packet(fds).empty()) {
      EXPECT_TRUE(client.hung_up());
    }
    EXPECT_TRUE(fds.empty());
    EXPECT_EQ(bystander.run("stat").value(0), kPage);
  }
  bystander.must("free " + std::to_string(made.block));
}

TEST(Malformed, AnUnreadableHeaderIsRefusedWithoutANumber) {
  TestBroker broker;
  broker.start();
  WireClient client(broker.socket());
  ASSERT_TRUE(client.send_bytes(std::vector<std::byte>(3)));
  std::vector<UniqueFd> fds;
  const auto refusal = wire::decode_unnumbered(client.receive_packet(fds));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(static_cast<Reason>(refusal->reason), Reason::kMalformed);
  EXPECT_TRUE(client.hung_up());
}

TEST(Malformed, SilenceBeforeHelloIsNoAccess) {
  TestBroker broker;
  broker.start();
  WireClient client(broker.socket());
  EXPECT_EQ(client.ask(wire::Stat{}).reason(), Reason::kOutOfOrder);
  EXPECT_TRUE(client.hung_up());
  expect_one(broker.records(), {.reason = Reason::kOutOfOrder, .pid = ::getpid()});
}

// C12
TEST(Export, OfARangeThatIsNoneIsRefusedWithItsNumbers) {
  TestBroker broker;
  broker.start();
  WireSession exporter(broker.socket());
  const auto made = exporter.share_block(4 * kPage, std::byte{1});
  constexpr auto kHuge = ~std::uint64_t{0};
  struct Case {
    std::uint64_t offset;
    std::uint64_t size;
    Reason reason;
  };
  const std::vector<Case> cases = {
      {64, 64, Reason::kNotAligned},
      {kPage - 1, kPage, Reason::kNotAligned},
      {0, 0, Reason::kEmptyRange},
      {0, 4 * kPage + 1, Reason::kOutOfRange},
      {4 * kPage, kPage, Reason::kOutOfRange},
      {kPage, kHuge, Reason::kOutOfRange},
      {kHuge - kPage + 1, kPage, Reason::kOutOfRange},
      {std::uint64_t{1} << 63, std::uint64_t{1} << 63, Reason::kOutOfRange},
  };
  for (const Case& bad : cases) {
    const auto reply = exporter.export_range(made.block, bad.offset, bad.size);
    EXPECT_EQ(reply.reason(), bad.reason) << bad.offset << " + " << bad.size;
    if (bad.reason != Reason::kEmptyRange) {
      EXPECT_EQ(reply.refusal->number[0], bad.offset);
    }
  }
  EXPECT_EQ(count(broker.records(), {.asked = Type::kExport}), cases.size());
  // What the client claims to have reported does not widen the file.
  const auto claim = exporter.client.ask(
      wire::Export{.block = made.block, .size = 8 * kPage, .reported_size = 8 * kPage});
  EXPECT_EQ(claim.reason(), Reason::kOutOfRange);
}

TEST(Export, OfSomebodyElsesBlockIsRefused) {
  TestBroker broker;
  broker.start();
  WirePeer owner(broker.helper("wire"));
  owner.must("hello");
  const auto made = owner.share_block(kPage, 1);
  WireSession other(broker.socket());
  EXPECT_EQ(other.export_range(made.block, 0, kPage).reason(), Reason::kUnknownBlock);
  EXPECT_EQ(other.free(made.block).reason(), Reason::kUnknownBlock);
  EXPECT_EQ(owner.run("stat").value(0), kPage);
}

TEST(Export, OfMemoryThatWasNeverCommittedIsRefused) {
  TestBroker broker;
  broker.start();
  WireClient client(broker.socket());
  ASSERT_TRUE(client.ask(wire::Hello{}).body);
  wire::Mint mint{.count = 1};
  mint.specs[0] = {.size = kPage, .page = 4096};
  const auto minted = client.ask(mint);
  ASSERT_TRUE(minted.body);
  const auto reply = client.ask(wire::Export{.block = minted.body->blocks[0], .size = kPage});
  EXPECT_EQ(reply.reason(), Reason::kNotCommitted);
}

TEST(Capacity, IsTheDevicesAndEverybodys) {
  TestBroker broker({.capacity = "2M"});
  broker.start();
  WirePeer greedy(broker.helper("wire"));
  greedy.must("hello");
  greedy.must(fmt::format("mint {}", 2 * kMiB - kPage));
  WireSession other(broker.socket());
  const auto refused = other.mint(2 * kPage);
  EXPECT_EQ(refused.reason(), Reason::kCapacity);
  EXPECT_EQ(refused.refusal->number[1], kPage);
  EXPECT_TRUE(other.mint(kPage).body);
  greedy.kill();
  EXPECT_EQ(other.stat().used, kPage);
  EXPECT_TRUE(other.mint(2 * kMiB - kPage).body);
}

TEST(Capacity, IsAskedBackFromOthersBeforeARefusal) {
  TestBroker broker({.capacity = "2M"});
  broker.start();
  WirePeer keeper(broker.helper("wire"));
  keeper.must("hello");
  keeper.must("attach");
  const std::string block = keeper.must(fmt::format("mint {}", 2 * kMiB)).at(0);
  WireSession asker(broker.socket());
  wire::Mint mint{.count = 1};
  mint.specs[0] = {.size = kPage, .page = 4096};

  keeper.helper.tell("event-then-free " + block);
  EXPECT_TRUE(asker.client.ask(mint).body);
  EXPECT_EQ(WirePeer::parse(keeper.helper.hear()).words,
            Words{std::to_string(static_cast<int>(wire::EventKind::kReturn))});
}

TEST(Capacity, ThatIsWaitedForKeepsNobodyElseWaiting) {
  TestBroker broker({.capacity = "2M"});
  broker.start();
  WirePeer keeper(broker.helper("wire"));
  keeper.must("hello");
  keeper.must("attach");
  keeper.must(fmt::format("mint {}", 2 * kMiB));
  WireClient asker(broker.socket());
  ASSERT_TRUE(asker.ask(wire::Hello{}).body);
  wire::Mint mint{.count = 1};
  mint.specs[0] = {.size = kPage, .page = 4096};
  // Refused after the time, and what was sent behind it is answered after it, not with it.
  ASSERT_TRUE(asker.send(mint));
  int served = 0;
  while (!wait_readable(asker.socket(), std::chrono::milliseconds(0))) {
    EXPECT_EQ(keeper.run("stat").value(0), 2 * kMiB);
    ++served;
  }
  EXPECT_GT(served, 0);
  EXPECT_EQ(asker.receive<wire::Mint>().reason(), Reason::kCapacity);
  EXPECT_TRUE(asker.ask(wire::Stat{}).body);
}

// What a process says of itself is passed on as such, and changes nothing else.
TEST(UsagePage, HoldsOnlyWhatItsProcessClaims) {
  TestBroker broker;
  broker.start();
  WireClient liar(broker.socket());
  auto hello = liar.ask(wire::Hello{});
  ASSERT_TRUE(hello.body);
  ASSERT_EQ(hello.fds.size(), wire::kHelloDescriptors);
  const int fd = hello.fds[2].get();
  EXPECT_EQ(::ftruncate(fd, 0), -1) << "the broker would fault";
  {
    auto page = os::ReportedMemory::map(fd, wire::kUsagePageBytes);
    ASSERT_TRUE(page) << page.error().what();
    for (std::size_t i = 0; i < page->words(); ++i)
      page->word(i).store(~std::uint64_t{0});
  }
  std::uint64_t walked = 0;
  wire::Usage next{};
  for (;;) {
    const auto reply = liar.ask(next);
    ASSERT_TRUE(reply.body);
    if (reply.body->session == 0) break;
    EXPECT_EQ(reply.body->counts.requested, ~std::uint64_t{0});
    EXPECT_EQ(reply.body->charged, 0U);
    next = {.session = reply.body->session, .device = reply.body->device};
    ++walked;
  }
  EXPECT_EQ(walked, 2U) << "devices there are, and none that are only claimed";
  EXPECT_EQ(liar.ask(wire::Stat{}).body->used, 0U);
}

TEST(SlowReader, ThatNeverTakesItsDescriptorsIsCutOff) {
  TestBroker broker;
  broker.start();
  WirePeer exporter(broker.helper("wire"));
  exporter.must("hello");
  const auto one = exporter.share_block(kPage, 1, wire::kAnyProcess);
  const auto two = exporter.share_block(kPage, 2, wire::kAnyProcess);
  WireClient slow(broker.socket());
  ASSERT_TRUE(slow.ask(wire::Hello{}).body);
  ASSERT_TRUE(slow.send(wire::Import{.key = key_of(one.key)}));
  ASSERT_TRUE(slow.send(wire::Import{.key = key_of(two.key)}));
  // Connections take turns: when the other one has been served three times, both were.
  for (int i = 0; i < 3; ++i)
    exporter.must("stat");

  // The first answer is waiting. The second would be a second message with descriptors: instead of
  // it comes the end.
  std::vector<UniqueFd> fds;
  EXPECT_FALSE(slow.receive_packet(fds).empty());
  EXPECT_EQ(fds.size(), 1U);
  EXPECT_TRUE(slow.hung_up());
  // Both grants are undone: one was never sent, the holder of the other is gone.
  expect_one(broker.records(),
             {.type = Type::kGrantUndelivered, .share = two.share, .refs_after = 0});
  exporter.must(fmt::format("free {}", one.block));
  exporter.must(fmt::format("free {}", two.block));
  EXPECT_EQ(exporter.run("stat").value(0), 0U);
}

TEST(Agent, ThatNeverReadsIsCutOffAndTheBrokerGoesOn) {
  TestBroker broker;
  broker.start();
  WireSession session(broker.socket(), WireSession::Silent{});
  const auto hello = session.hello();
  ASSERT_TRUE(hello.body);
  WireClient agent(broker.socket());
  ASSERT_TRUE(
      agent.ask(wire::Attach{.session = hello.body->session, .secret = hello.body->secret}).body);
  const auto made = session.share_block(kPage, std::byte{1}, wire::kAnyProcess);
  ASSERT_TRUE(
      session.client.ask(wire::Watch{.key = key_of(made.key), .mode = wire::WatchMode::kStart})
          .body);
  // Each round is two events. The queue of a connection holds far fewer than that many.
  constexpr int kRounds = 2000;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(session.import(made.key).body) << i;
    ASSERT_TRUE(session.close(made.share).body) << i;
  }
  std::vector<UniqueFd> fds;
  int read = 0;
  while (!agent.receive_packet(fds).empty())
    ++read;
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 2 * kRounds);
  // The session goes on, and may have another agent.
  WireClient next(broker.socket());
  ASSERT_TRUE(
      next.ask(wire::Attach{.session = hello.body->session, .secret = hello.body->secret}).body);
  ASSERT_TRUE(session.import(made.key).body);
  const auto event = wire::decode_event(next.receive_packet(fds));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->what, static_cast<std::uint32_t>(wire::EventKind::kImported));
  EXPECT_EQ(event->share, made.share);
}

TEST(Agent, OfAnotherProcessIsRefusedWhateverItKnows) {
  TestBroker broker;
  broker.start();
  WirePeer owner(broker.helper("wire"));
  owner.must("hello");
  const Words told = owner.must("secret");
  ASSERT_EQ(told.size(), 2U);
  wire::Attach attach{.session = std::stoull(told[0])};
  for (std::size_t i = 0; i < attach.secret.size(); ++i) {
    attach.secret[i] = static_cast<std::uint8_t>(std::stoul(told[1].substr(2 * i, 2), nullptr, 16));
  }
  WireClient thief(broker.socket());
  EXPECT_EQ(thief.ask(attach).reason(), Reason::kOutOfOrder);
  EXPECT_TRUE(thief.hung_up());
  expect_one(broker.records(), {.reason = Reason::kOutOfOrder, .pid = ::getpid()});
  // The owner may, with the same bytes.
  EXPECT_TRUE(owner.run("attach").ok());
}

// D19, with real sockets; broker/core_test.cc has the other kinds.
TEST(RequestNumber, ThatComesAgainIsNotCarriedOutAgain) {
  TestBroker broker;
  broker.start();
  WirePeer exporter(broker.helper("wire"));
  exporter.must("hello");
  const auto made = exporter.share_block(kPage, 7, wire::kAnyProcess);

  WireClient importer(broker.socket());
  const auto ask = [&](std::uint64_t number, const auto& body) {
    using R = std::decay_t<decltype(body)>;
    const auto frame = wire::encode(wire::Protocol<R>::kKind, 0, number, body);
    std::vector<UniqueFd> fds;
    auto bytes =
        importer.send_bytes(frame.view()) ? importer.receive_packet(fds) : std::vector<std::byte>();
    return std::pair(std::move(bytes), fds.size());
  };
  EXPECT_EQ(ask(1, wire::Hello{}).second, wire::kHelloDescriptors);
  wire::Mint mint{.count = 1};
  mint.specs[0] = {.size = kPage, .page = 4096};
  const auto minted = ask(2, mint);
  EXPECT_EQ(ask(2, mint), minted);
  EXPECT_EQ(minted.second, 1U);
  EXPECT_EQ(exporter.run("stat").value(0), 2 * kPage);

  const wire::Import import{.key = key_of(made.key)};
  const auto granted = ask(3, import);
  EXPECT_EQ(ask(3, import), granted);
  expect_one(broker.records(), {.type = Type::kImport, .refs_after = 1});
  const auto late = ask(2, mint);
  const auto refusal = wire::decode_reply<wire::Mint>(late.first, 2);
  ASSERT_TRUE(refusal && std::holds_alternative<wire::Refusal>(*refusal));
  EXPECT_EQ(std::get<wire::Refusal>(*refusal).reason,
            static_cast<std::uint16_t>(Reason::kOutOfOrder));
  EXPECT_TRUE(importer.hung_up());
}

TEST(Sessions, OfOneUserAreLimitedAndTheNextIsToldSo) {
  TestBroker broker({.arguments = "--max-sessions 3"});
  broker.start();
  std::vector<WirePeer> peers;  // Processes: a second HELLO of one would replace the first.
  for (int i = 0; i < 3; ++i) {
    peers.emplace_back(broker.helper("wire"));
    peers.back().must("hello");
  }
  WireClient late(broker.socket());
  const auto refused = late.ask(wire::Hello{});
  EXPECT_EQ(refused.reason(), Reason::kTooManySessions);
  EXPECT_EQ(refused.refusal->number[0], 3U);
  EXPECT_EQ(refused.refusal->number[1], 3U);
  EXPECT_TRUE(late.hung_up());
  peers.back().kill();
  // Asked twice, the broker has seen the death: see WireSession::stat().
  peers.front().must("stat");
  peers.front().must("stat");
  EXPECT_TRUE(WireClient(broker.socket()).ask(wire::Hello{}).body);
}

TEST(Connections, OfOneUserAreLimitedAndTheNextIsToldSo) {
  TestBroker broker({.arguments = "--max-sessions 20"});
  broker.start();
  constexpr std::size_t kLimit = 2 * 20 + 16;
  std::vector<WireClient> clients;
  for (std::size_t i = 0; i < kLimit; ++i)
    clients.emplace_back(broker.socket());
  WireClient late(broker.socket());
  std::vector<UniqueFd> fds;
  const auto refusal = wire::decode_unnumbered(late.receive_packet(fds));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(static_cast<Reason>(refusal->reason), Reason::kTooManySessions);
  EXPECT_EQ(refusal->number[1], kLimit);
  EXPECT_TRUE(late.hung_up());
  clients.pop_back();
  // Events are served in order: after this answer the one who hung up is gone.
  EXPECT_TRUE(clients.front().ask(wire::Hello{}).body);
  WireClient next(broker.socket());
  EXPECT_EQ(next.ask(wire::Stat{}).reason(), Reason::kOutOfOrder) << "not served";
}

}  // namespace
}  // namespace hufu::test
