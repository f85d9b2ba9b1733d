#include "share/client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "base/units.h"
#include "os/memfd.h"
#include "share/fake_broker.h"
#include "share/scoped_environment.h"

namespace hufu::share {
namespace {

constexpr std::uint64_t kPage = bytes_of(PageSize::k4KiB);
constexpr const char* kKey = "KKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKK";

bool says(const Error& error, const std::string& part) {
  return error.what().find(part) != std::string_view::npos;
}

wire::StatReply stat_of(std::uint64_t capacity) {
  wire::StatReply reply{};
  reply.capacity = capacity;
  return reply;
}

void answer_stat(FakeBroker& broker, std::uint64_t capacity) {
  broker.answer<wire::Stat>(broker.expect<wire::Stat>(), stat_of(capacity));
}

UniqueFd memory(std::uint64_t size) {
  auto fd = os::make_memfd("test", size, os::Backing::kShmem);
  EXPECT_TRUE(fd) << fd.error().what();
  return std::move(*fd);
}

template <class... Fds>
std::vector<UniqueFd> list_of(Fds... fds) {
  std::vector<UniqueFd> list;
  (list.push_back(std::move(fds)), ...);
  return list;
}

wire::MintReply minted(std::uint64_t block) {
  wire::MintReply reply{};
  reply.count = 1;
  reply.blocks[0] = block;
  reply.backing[0] = wire::Backing::kShmem;
  return reply;
}

constexpr std::array<wire::MintSpec, 1> kOnePage = {wire::MintSpec{kPage, kPage, 0}};

wire::ImportReply grant_of(std::uint64_t size) {
  wire::ImportReply reply{};
  reply.share = 42;
  reply.size = size;
  reply.reported_size = size;
  reply.page = kPage;
  reply.access = static_cast<std::uint32_t>(Access::kReadWrite);
  reply.backing = wire::Backing::kShmem;
  reply.slot = 1;
  return reply;
}

class Quickly : public ::testing::Test {
 protected:
  void SetUp() override { environment_.set("HUFU_TIMEOUT_MS", "100"); }

 private:
  ScopedEnvironment environment_;
};

// The socket's number: the lowest from 64 up that is open.
int socket_number() {
  for (int fd = 64; fd < 256; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1) return fd;
  }
  return -1;
}

// --- Sessions ------------------------------------------------------------------------------------

TEST(Session, IsWhatHelloSaid) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) { it.open_session(); });
  Client client(broker.address());
  EXPECT_EQ(client.generation(), 0U);
  const auto session = client.session();
  ASSERT_TRUE(session) << session.error().what();
  EXPECT_EQ(session->peer_pid, 4711);
  EXPECT_EQ(session->broker_pid, 815);
  EXPECT_EQ(session->devices, 4U);
  EXPECT_EQ(session->instance[0], 7);
  EXPECT_EQ(client.generation(), 1U);
}

TEST(Session, IsOpenedOnceForManyCalls) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    answer_stat(it, 1);
    answer_stat(it, 2);
  });
  Client client(broker.address());
  EXPECT_EQ(client.stat(0)->capacity, 1U);
  EXPECT_EQ(client.stat(0)->capacity, 2U);
  EXPECT_EQ(client.generation(), 1U);
}

TEST(Session, EndsWithBye) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    EXPECT_TRUE(it.expect<wire::Bye>().one_way);
    it.expect_end();
  });
  Client client(broker.address());
  ASSERT_TRUE(client.session());
}

TEST(Session, WithoutABrokerSaysHowToHaveOne) {
  Client client(BrokerAddress{});
  const auto session = client.session();
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().reason, Reason::kNoBroker);
  EXPECT_TRUE(says(session.error(), "HUFU_BROKER=none"));
}

TEST(Session, ASystemBrokerThatIsAwayIsAnError) {
  FakeBroker broker;
  Client client({BrokerMode::kSystem, broker.path() + ".none", false});
  const auto session = client.session();
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, Errc::kUnavailable);
  EXPECT_TRUE(says(session.error(), "systemctl start"));
}

TEST(Session, ASocketInADirectoryThatOthersWriteIsNotAsked) {
  FakeBroker broker;
  ASSERT_EQ(::chmod(std::filesystem::path(broker.path()).parent_path().c_str(), 0777), 0);
  Client client(broker.address());
  const auto session = client.session();
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().reason, Reason::kBrokerUntrusted);
  EXPECT_TRUE(says(session.error(), "777"));
}

TEST(Session, AListenerOfAnotherUserIsNotAsked) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to listen as somebody else";
  constexpr uid_t kSomebody = 12345;
  FakeBroker broker;  // For its directory only.
  const std::string path = broker.path() + ".other";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path.data(), path.size());
    if (::bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) ::_exit(1);
    if (::seteuid(kSomebody) != 0 || ::listen(listener, 1) != 0) ::_exit(1);
    (void)!::write(ready[1], "r", 1);
    while (true)
      ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Client client({BrokerMode::kPersonal, path, false});
  const auto session = client.session();
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().reason, Reason::kBrokerUntrusted);
  EXPECT_TRUE(says(session.error(), "12345"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(Session, KeepsOutOfTheWayOfLowDescriptors) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) { it.open_session(); });
  Client client(broker.address());
  ASSERT_TRUE(client.session());
  const int number = socket_number();
  ASSERT_GE(number, 64);
  EXPECT_EQ(::fcntl(number, F_GETFD), FD_CLOEXEC);
}

TEST(Session, AForkedChildHasOneOfItsOwn) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    UniqueFd parents = it.take_connection();
    it.open_session();
    answer_stat(it, 2);
    EXPECT_TRUE(it.expect<wire::Bye>().one_way);
    it.expect_end();
    it.give_connection(std::move(parents));
    answer_stat(it, 1);
  });
  Client client(broker.address());
  ASSERT_TRUE(client.session());
  const int number = socket_number();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    client.forget_after_fork();
    const bool closed = ::fcntl(number, F_GETFD) == -1;
    const auto stat = client.stat(0);
    const bool right = closed && stat && stat->capacity == 2 && client.generation() > 1;
    client.~Client();
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(client.stat(0)->capacity, 1U);
}

// --- Brokers that fail ---------------------------------------------------------------------------

TEST_F(Quickly, ABrokerThatDoesNotAnswerIsGivenUpAndItsLateAnswerIsNotTaken) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    (void)it.expect<wire::Stat>();
    it.expect_end();
    it.open_session();
    answer_stat(it, 2);
  });
  Client client(broker.address());
  ASSERT_TRUE(client.session());
  const auto silent = client.stat(0);
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Errc::kUnavailable);
  EXPECT_EQ(silent.error().reason, Reason::kBrokerSilent);
  EXPECT_TRUE(says(silent.error(), "100 ms"));
  EXPECT_TRUE(says(silent.error(), std::to_string(::getpid())));
  EXPECT_EQ(client.stat(0)->capacity, 2U);
  EXPECT_EQ(client.generation(), 2U);
}

TEST_F(Quickly, AStoppedBrokerIsCalledStopped) {
  FakeBroker place;
  const std::string path = place.path() + ".stopped";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto listener = os::listen_at(path, 4);
    (void)!::write(ready[1], listener ? "r" : "x", 1);
    while (true)
      ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'r');
  ::kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));

  Client client({BrokerMode::kPersonal, path, false});
  const auto session = client.session();
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().reason, Reason::kBrokerSilent);
  EXPECT_TRUE(says(session.error(), "T (stopped)")) << session.error().what();
  EXPECT_TRUE(says(session.error(), "kill -CONT " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(Client, RepeatsARequestOnceWhenTheBrokerHangsUp) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    (void)it.expect<wire::Stat>();
    it.hang_up();
    it.open_session();
    answer_stat(it, 5);
  });
  Client client(broker.address());
  const auto stat = client.stat(0);
  ASSERT_TRUE(stat) << stat.error().what();
  EXPECT_EQ(stat->capacity, 5U);
  EXPECT_EQ(client.generation(), 2U);
}

TEST(Client, DoesNotRepeatItForEver) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    for (int i = 0; i < 2; ++i) {
      it.open_session();
      (void)it.expect<wire::Stat>();
      it.hang_up();
    }
  });
  Client client(broker.address());
  const auto stat = client.stat(0);
  ASSERT_FALSE(stat);
  EXPECT_EQ(stat.error().reason, Reason::kBrokerGone);
}

TEST(Client, OpensItsSessionAgainWhenTheBrokerLeavesDuringHello) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.accept();
    it.hang_up();
    it.open_session();
  });
  Client client(broker.address());
  const auto session = client.session();
  EXPECT_TRUE(session) << session.error().what();
}

TEST(Client, AnAnswerToAnotherRequestEndsTheConnection) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    const auto request = it.expect<wire::Stat>();
    it.answer_as<wire::Stat>(request.id + 1, stat_of(1));
    it.expect_end();
    it.open_session();
    answer_stat(it, 2);
  });
  Client client(broker.address());
  const auto wrong = client.stat(0);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().reason, Reason::kMalformed);
  EXPECT_EQ(client.stat(0)->capacity, 2U);
}

// The number that the request had is not repeated by who could not, or did not, read it.
TEST(Client, ARefusalWithoutANumberIsAnError) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.expect<wire::Stat>();
    it.refuse_unnumbered(Reason::kMalformed, {});
    it.expect_end();
  });
  Client client(broker.address());
  const auto stat = client.stat(0);
  ASSERT_FALSE(stat);
  EXPECT_EQ(stat.error().reason, Reason::kMalformed);
  EXPECT_TRUE(says(stat.error(), "STAT: ")) << stat.error().what();
  EXPECT_FALSE(says(stat.error(), "is no answer to request")) << stat.error().what();
}

// Whether the client's HELLO was on its way before the broker hung up, or is sent after.
TEST(Client, TooManyConnectionsIsAnErrorWithTheNumbers) {
  for (const bool hello_first : {false, true}) {
    FakeBroker broker;
    broker.play([=](FakeBroker& it) {
      it.accept();
      if (hello_first) it.wait_readable();  // Not read: the kernel will speak of a reset.
      it.refuse_unnumbered(Reason::kTooManySessions, {512, 512});
      it.hang_up();
    });
    Client client(broker.address());
    const auto session = client.session();
    broker.finish();
    ASSERT_FALSE(session);
    EXPECT_EQ(session.error().reason, Reason::kTooManySessions) << session.error().what();
    EXPECT_EQ(session.error().code, Errc::kTableFull);
    EXPECT_TRUE(says(session.error(), "512 sessions or connections")) << session.error().what();
  }
}

TEST(Client, ARefusalIsAnErrorAndTheSessionGoesOn) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.refuse<wire::Import>(it.expect<wire::Import>(), Reason::kKeyUnknown);
    answer_stat(it, 3);
  });
  Client client(broker.address());
  const auto grant = client.import(kKey, 0);
  ASSERT_FALSE(grant);
  EXPECT_EQ(grant.error().code, Errc::kRefused);
  EXPECT_EQ(grant.error().reason, Reason::kKeyUnknown);
  EXPECT_TRUE(says(grant.error(), broker.path()));
  EXPECT_FALSE(says(grant.error(), "KKKK"));
  EXPECT_EQ(client.stat(0)->capacity, 3U);
  EXPECT_EQ(client.generation(), 1U);
}

// --- Descriptors ---------------------------------------------------------------------------------

TEST(Descriptors, MoreThanTheAnswerHasEndTheConnection) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.answer<wire::Import>(it.expect<wire::Import>(), grant_of(kPage),
                            list_of(memory(kPage), memory(kPage)));
    it.expect_end();
  });
  Client client(broker.address());
  const auto grant = client.import(kKey, 0);
  ASSERT_FALSE(grant);
  EXPECT_TRUE(says(grant.error(), "sent 2 descriptors"));
}

TEST(Descriptors, UnaskedOnesEndTheConnection) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.answer<wire::Stat>(it.expect<wire::Stat>(), stat_of(1), list_of(memory(kPage)));
    it.expect_end();
  });
  Client client(broker.address());
  const auto stat = client.stat(0);
  ASSERT_FALSE(stat);
  EXPECT_EQ(stat.error().reason, Reason::kMalformed);
}

TEST(Descriptors, AMissingOneEndsTheConnection) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.answer<wire::Import>(it.expect<wire::Import>(), grant_of(kPage));
    it.expect_end();
  });
  Client client(broker.address());
  const auto grant = client.import(kKey, 0);
  ASSERT_FALSE(grant);
  EXPECT_TRUE(says(grant.error(), "sent 0 descriptors"));
}

TEST(Descriptors, RunningOutOfThemGivesTheImportBackAndKeepsTheSession) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.answer<wire::Import>(it.expect<wire::Import>(), grant_of(kPage), list_of(memory(kPage)));
    const auto close = it.expect<wire::Close>();
    EXPECT_EQ(std::get<wire::Close>(close.body).share, 42U);
    answer_stat(it, 4);
  });
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();  // Its limit is its own, and the script's descriptors are not its.
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Client client(broker.address());
    if (!client.session()) ::_exit(1);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 1;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto grant = client.import(kKey, 0);
    if (grant || grant.error().code != Errc::kOutOfMemory) ::_exit(2);
    if (grant.error().reason != Reason::kDescriptors) ::_exit(3);
    const auto stat = client.stat(0);
    ::_exit(stat && stat->capacity == 4 ? 0 : 4);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(Descriptors, AClosedSocketIsNamedAndTheNextCallStartsAfresh) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.expect_end();
    it.open_session();
    answer_stat(it, 6);
  });
  Client client(broker.address());
  ASSERT_TRUE(client.session());
  const int number = socket_number();
  ::close(number);
  const auto stat = client.stat(0);
  ASSERT_FALSE(stat);
  EXPECT_TRUE(says(stat.error(), "descriptor " + std::to_string(number)));
  EXPECT_TRUE(says(stat.error(), "closed by this program"));
  EXPECT_EQ(client.stat(0)->capacity, 6U);
}

TEST(Descriptors, AReplacedSocketIsNamedAndNeitherWrittenNorClosed) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.expect_end();
  });
  Client client(broker.address());
  ASSERT_TRUE(client.session());
  const int number = socket_number();
  const UniqueFd file = memory(kPage);
  ASSERT_EQ(::dup2(file.get(), number), number);
  const auto stat = client.stat(0);
  ASSERT_FALSE(stat);
  EXPECT_TRUE(says(stat.error(), "replaced by this program"));
  EXPECT_NE(::fcntl(number, F_GETFD), -1) << "the program's descriptor was closed";
  EXPECT_EQ(os::facts_of(number)->committed, 0U) << "the program's file was written";
  ::close(number);
}

// --- Blocks --------------------------------------------------------------------------------------

TEST(Blocks, NumbersOfAnEarlierSessionMeanNothingInTheNext) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.answer<wire::Mint>(it.expect<wire::Mint>(), minted(1), list_of(memory(kPage)));
    (void)it.expect<wire::Stat>();
    it.hang_up();
    it.open_session();
    answer_stat(it, 1);
    it.answer<wire::Mint>(it.expect<wire::Mint>(), minted(1), list_of(memory(kPage)));
    const auto request = it.expect<wire::Export>();
    EXPECT_EQ(std::get<wire::Export>(request.body).block, 1U);
    it.answer<wire::Export>(request, {});
  });
  Client client(broker.address());
  const auto old = client.mint(0, kOnePage);
  ASSERT_TRUE(old) << old.error().what();
  ASSERT_TRUE(client.stat(0));
  const auto fresh = client.mint(0, kOnePage);
  ASSERT_TRUE(fresh);
  EXPECT_NE((*old)[0].block, (*fresh)[0].block) << "the brokers gave both the same number";

  const auto refused = client.export_range({(*old)[0].block, 0, kPage, kPage, 0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kRefused);
  EXPECT_EQ(refused.error().reason, Reason::kUnknownBlock);
  EXPECT_TRUE(says(refused.error(), "a broker that is gone (pid " + std::to_string(::getpid())));
  EXPECT_FALSE(client.free((*old)[0].block, true));
  EXPECT_TRUE(client.export_range({(*fresh)[0].block, 0, kPage, kPage, 0}));
}

TEST(Blocks, AnExportIsNotRepeatedWithAnotherBroker) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    it.answer<wire::Mint>(it.expect<wire::Mint>(), minted(1), list_of(memory(kPage)));
    (void)it.expect<wire::Export>();
    it.hang_up();
  });
  Client client(broker.address());
  const auto block = client.mint(0, kOnePage);
  ASSERT_TRUE(block);
  const auto refused = client.export_range({(*block)[0].block, 0, kPage, kPage, 0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, Reason::kUnknownBlock);
}

TEST(Blocks, FreeWaitsForAnAnswerOnlyWhenExported) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    for (const std::uint64_t id : {10U, 11U}) {
      it.answer<wire::Mint>(it.expect<wire::Mint>(), minted(id), list_of(memory(kPage)));
    }
    const auto silent = it.expect<wire::Free>();
    EXPECT_TRUE(silent.one_way);
    EXPECT_EQ(std::get<wire::Free>(silent.body).block, 10U);
    const auto awaited = it.expect<wire::Free>();
    EXPECT_FALSE(awaited.one_way);
    EXPECT_EQ(std::get<wire::Free>(awaited.body).block, 11U);
    it.answer<wire::Free>(awaited, {});
  });
  Client client(broker.address());
  const auto first = client.mint(0, kOnePage);
  const auto second = client.mint(0, kOnePage);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(client.free((*first)[0].block, false));
  EXPECT_TRUE(client.free((*second)[0].block, true));
  EXPECT_FALSE(client.free((*second)[0].block, true)) << "freed twice";
}

TEST(Blocks, AFileThatCouldShrinkIsNotTaken) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(unsealed.get(), static_cast<off_t>(kPage)), 0);
    it.answer<wire::Mint>(it.expect<wire::Mint>(), minted(10), list_of(std::move(unsealed)));
    EXPECT_EQ(std::get<wire::Free>(it.expect<wire::Free>().body).block, 10U);
  });
  Client client(broker.address());
  const auto block = client.mint(0, kOnePage);
  ASSERT_FALSE(block);
  EXPECT_EQ(block.error().reason, Reason::kSealsChanged);
}

TEST(Blocks, TooManyAtOnceAreRefusedWithoutAsking) {
  Client client(BrokerAddress{});
  const std::vector<wire::MintSpec> many(wire::kMaxMint + 1, kOnePage[0]);
  EXPECT_EQ(client.mint(0, many).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(client.mint(0, {}).error().code, Errc::kInvalidArgument);
}

// --- Imports' grants -----------------------------------------------------------------------------

// What the client makes of this reply with this descriptor; the import is given back when refused.
Result<Client::Grant> offer(const wire::ImportReply& reply, UniqueFd fd, std::uint32_t asked) {
  std::vector<UniqueFd> fds = list_of(std::move(fd));
  FakeBroker broker;  // Its script ends with it, so what the script uses comes before.
  broker.play([&](FakeBroker& it) {
    it.open_session();
    it.answer<wire::Import>(it.expect<wire::Import>(), reply, fds);
  });
  Client client(broker.address());
  return client.import(kKey, asked);
}

constexpr auto kRead = static_cast<std::uint32_t>(Access::kReadOnly);
constexpr auto kWrite = static_cast<std::uint32_t>(Access::kReadWrite);

TEST(Grant, ThatHoldsWhatItSaysIsTaken) {
  const auto grant = offer(grant_of(kPage), memory(2 * kPage), kWrite);
  ASSERT_TRUE(grant) << grant.error().what();
  EXPECT_EQ(grant->generation, 1U);
}

TEST(Grant, BeyondTheFilesEndIsRefused) {
  auto reply = grant_of(kPage);
  reply.offset = kPage;
  EXPECT_EQ(offer(reply, memory(kPage), 0).error().reason, Reason::kOutOfRange);
}

TEST(Grant, OfWriteAccessWithAReadOnlyDescriptorIsRefused) {
  const UniqueFd file = memory(kPage);
  auto read_only = os::reopen(file.get(), Access::kReadOnly);
  ASSERT_TRUE(read_only);
  EXPECT_FALSE(offer(grant_of(kPage), std::move(*read_only), 0));
}

TEST(Grant, OfMoreThanReadingWithAWritableDescriptorIsRefused) {
  auto reply = grant_of(kPage);
  reply.access = kRead;
  EXPECT_FALSE(offer(reply, memory(kPage), kRead)) << "said read-only, handed over writable";
}

TEST(Grant, OfAnotherAccessThanAskedForIsRefused) {
  EXPECT_FALSE(offer(grant_of(kPage), memory(kPage), kRead));
}

TEST(Grant, MayReportThePaddingButNotMore) {
  auto reply = grant_of(kPage);
  reply.reported_size = kPage + 32;
  EXPECT_TRUE(offer(reply, memory(kPage), 0));
  reply.reported_size = 3 * kPage;
  EXPECT_FALSE(offer(reply, memory(kPage), 0));
}

// --- The rest ------------------------------------------------------------------------------------

TEST(Close, OfAnEarlierSessionsImportIsNotSent) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    const auto close = it.expect<wire::Close>();
    EXPECT_EQ(std::get<wire::Close>(close.body).share, 2U);
  });
  Client client(broker.address());
  client.close({.share = 1, .generation = 0});
  ASSERT_TRUE(client.session());
  client.close({.share = 1, .generation = client.generation() + 1});
  client.close({.share = 2, .generation = client.generation()});
}

TEST(Report, IsLimitedPerSecondAndNeverAnswered) {
  int reports = 0;
  FakeBroker broker;
  broker.play([&](FakeBroker& it) {
    it.open_session();
    // The session's end is behind the last report on the same socket.
    while (it.expect_one_of<wire::Report, wire::Bye>().kind() == wire::Kind::kReport)
      ++reports;
  });
  {
    Client client(broker.address());
    client.report(Reason::kUnregistered, nullptr, 1);  // No session, no report.
    ASSERT_TRUE(client.session());
    for (int i = 0; i < 1000; ++i)
      client.report(Reason::kUnregistered, &i, sizeof(i));
  }
  broker.finish();
  EXPECT_GE(reports, 100);
  EXPECT_LE(reports, 200) << "the thousand took two windows at most";
}

TEST(List, WalksToTheEnd) {
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    for (const std::uint64_t share : {3U, 9U, 0U}) {
      wire::ListReply reply{};
      reply.share = share;
      it.answer<wire::List>(it.expect<wire::List>(), reply);
    }
  });
  Client client(broker.address());
  const auto list = client.list();
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 2U);
  EXPECT_EQ((*list)[1].share, 9U);
}

TEST(Client, ServesManyThreadsOneRequestAtATime) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 50;
  FakeBroker broker;
  broker.play([](FakeBroker& it) {
    it.open_session();
    for (int i = 0; i < kThreads * kCalls; ++i) {
      const auto request = it.expect<wire::Stat>();
      it.answer<wire::Stat>(request, stat_of(std::get<wire::Stat>(request.body).device + 1));
    }
  });
  Client client(broker.address());
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::atomic<int> wrong = 0;
  for (std::uint32_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([&client, &wrong, number] {
      for (int i = 0; i < kCalls; ++i) {
        const auto stat = client.stat(number);
        if (!stat || stat->capacity != number + 1) ++wrong;
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hufu::share
