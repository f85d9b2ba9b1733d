#include "support/wire_session.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "os/commit.h"
#include "os/file.h"

#include <fmt/format.h>

namespace hufu::test {
namespace {

std::string key_text_of(const wire::ExportReply& reply) {
  return {reply.key.data(), reply.key.size()};
}

template <class R>
const typename wire::Protocol<R>::Reply& must_have(const Reply<R>& reply, std::string_view what) {
  if (!reply.body) {
    throw Stuck(fmt::format("{}: {}", what,
                            reply.refusal ? name_of(reply.reason()) : "the broker hung up"));
  }
  return *reply.body;
}

}  // namespace

// ---- WireClient ----

WireClient::WireClient(const std::string& path) {
  auto connected = os::connect_to(path);
  if (!connected) throw Stuck(std::string(connected.error().what()));
  socket_ = std::move(*connected);
}

bool WireClient::send_bytes(std::span<const std::byte> bytes) {
  return os::send(socket_.get(), bytes, {}).has_value();
}

std::vector<std::byte> WireClient::receive_packet(std::vector<UniqueFd>& fds) {
  if (!wait_readable(socket_.get())) {
    throw Stuck(fmt::format("the broker does not answer within {} s", kDeadline.count()));
  }
  std::array<std::byte, wire::kMaxBatchMessage + 1> buffer;
  const auto packet = os::receive(socket_.get(), buffer, &fds);
  if (!packet || packet->end) return {};
  return {packet->bytes.begin(), packet->bytes.end()};
}

bool WireClient::hung_up() {
  std::vector<UniqueFd> fds;
  return receive_packet(fds).empty();
}

wire::KeyText key_of(const std::string& text) { return wire::key_text(text.c_str()); }

// ---- WireSession ----

WireSession::WireSession(const std::string& path) : client(path) { must_have(hello(), "HELLO"); }

Reply<wire::Hello> WireSession::hello() { return client.ask(wire::Hello{}); }

Reply<wire::Mint> WireSession::mint(std::uint64_t size, PageSize page) {
  wire::Mint mint{};
  mint.count = 1;
  mint.specs[0] = {.size = size, .page = static_cast<std::uint32_t>(bytes_of(page))};
  auto reply = client.ask(mint);
  if (!reply.body) return reply;
  auto mapped = os::GuardedMapping::map(reply.fds.at(0).get(), {.length = size, .alignment = page});
  if (!mapped) throw Stuck(std::string(mapped.error().what()));
  if (auto committed = os::commit_pages(mapped->base(), size, PageSize::k4KiB); !committed) {
    throw Stuck(std::string(committed.error().what()));
  }
  blocks.emplace(reply.body->blocks[0], std::move(*mapped));
  return reply;
}

Reply<wire::Export> WireSession::export_range(std::uint64_t block, std::uint64_t offset,
                                              std::uint64_t size, std::uint32_t flags) {
  return client.ask(wire::Export{.block = block, .offset = offset, .size = size, .flags = flags});
}

Reply<wire::ListPid> WireSession::list(const std::string& key, const std::vector<pid_t>& pids) {
  wire::ListPid list{.key = key_of(key), .count = static_cast<std::uint32_t>(pids.size())};
  std::ranges::copy(pids, list.pids.begin());
  return client.ask(list);
}

Reply<wire::Import> WireSession::import(const std::string& key, std::uint32_t access) {
  auto reply = client.ask(wire::Import{.key = key_of(key), .access = access});
  if (!reply.body) return reply;
  auto mapped = os::GuardedMapping::map(reply.fds.at(0).get(),
                                        {.offset = reply.body->offset,
                                         .length = reply.body->size,
                                         .access = static_cast<Access>(reply.body->access),
                                         .in_core_dumps = false});
  if (!mapped) throw Stuck(std::string(mapped.error().what()));
  imports.insert_or_assign(reply.body->share, std::move(*mapped));
  return reply;
}

Reply<wire::Close> WireSession::close(std::uint64_t share) {
  imports.erase(share);
  return client.ask(wire::Close{.share = share});
}

Reply<wire::Free> WireSession::free(std::uint64_t block) {
  return client.ask(wire::Free{.block = block});
}

Reply<wire::Withdraw> WireSession::withdraw(const std::string& key) {
  return client.ask(wire::Withdraw{.key = key_of(key)});
}

wire::StatReply WireSession::stat(std::uint32_t device) {
  must_have(client.ask(wire::Stat{.device = device}), "STAT");
  return must_have(client.ask(wire::Stat{.device = device}), "STAT");
}

WireSession::Export WireSession::share_block(std::uint64_t size, std::byte value,
                                             std::uint32_t flags) {
  const std::uint64_t id = must_have(mint(size), "MINT").blocks[0];
  std::fill_n(block(id), size, value);
  const auto exported = must_have(export_range(id, 0, size, flags), "EXPORT");
  return {.block = id, .key = key_text_of(exported), .share = exported.share};
}

// ---- The helper ----

namespace {

class Server {
 public:
  explicit Server(Channel& channel) : channel_(channel), path_(socket_path()) {}
  std::string answer(const Words& words);

 private:
  static std::string socket_path() {
    const std::string broker = os::env("HUFU_BROKER");
    constexpr std::string_view kScheme = "unix:";
    return broker.starts_with(kScheme) ? broker.substr(kScheme.size()) : broker;
  }

  template <class R>
  static std::string said(const Reply<R>& reply, const std::string& words = {}) {
    if (reply.body) return words.empty() ? "ok" : "ok " + words;
    if (!reply.refusal) return "gone";
    const auto& number = reply.refusal->number;
    return fmt::format("refused {} {} {} {} {}", reply.refusal->reason, number[0], number[1],
                       number[2], number[3]);
  }
  std::byte* address(const Words& words) {
    const std::uint64_t id = std::stoull(words.at(1));
    const bool ours = session_->blocks.contains(id);
    return (ours ? session_->block(id) : session_->imported(id)) + std::stoull(words.at(2));
  }
  // A process that did not connect uses the socket of one that did.
  std::string in_a_fork();
  // Exports as fast as it can, says so after a few, and ends with the shares that it was granted.
  std::string export_until_gone(std::uint64_t block, std::uint64_t size);

  Channel& channel_;
  std::string path_;
  std::optional<WireSession> session_;
  wire::Attach attach_{};            // As HELLO's reply wants it.
  std::optional<WireClient> agent_;  // The second connection.
};

std::string Server::in_a_fork() {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto reply = session_->client.ask(wire::Stat{});
    channel_.say(said(reply));
    ::_exit(session_->client.hung_up() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "ok closed" : "ok open";
}

std::string Server::export_until_gone(std::uint64_t block, std::uint64_t size) {
  constexpr std::size_t kWarmUp = 10;
  constexpr std::size_t kMost = 3000;  // So that the numbers fit into one line.
  std::string granted = "ok";
  for (std::size_t i = 0; i < kMost; ++i) {
    const auto reply = session_->export_range(block, 0, size);
    if (!reply.body) return granted;
    granted += fmt::format(" {}", reply.body->share);
    if (i == kWarmUp) channel_.say("ok");
  }
  return granted;
}

std::string Server::answer(const Words& words) {
  const std::string& verb = words.at(0);
  const auto number = [&](std::size_t index) { return std::stoull(words.at(index)); };

  if (verb == "connect") {
    auto connected = os::connect_to(path_);
    if (!connected) return fmt::format("error {}", connected.error().sys_errno);
    session_.emplace(path_, WireSession::Silent{});
    return "ok";
  }
  if (verb == "hello") {
    if (!session_) session_.emplace(path_, WireSession::Silent{});
    const auto reply = session_->hello();
    if (!reply.body) return said(reply);
    attach_ = {.session = reply.body->session, .secret = reply.body->secret};
    return said(reply, std::to_string(reply.body->peer_pid));
  }
  if (verb == "secret") {
    return fmt::format("ok {} {:02x}", attach_.session, fmt::join(attach_.secret, ""));
  }
  if (verb == "attach") {
    agent_.emplace(path_);
    return said(agent_->ask(attach_));
  }
  if (verb == "watch") {
    return said(session_->client.ask(
        wire::Watch{.key = key_of(words.at(1)), .mode = wire::WatchMode::kStart}));
  }
  if (verb == "event") {
    std::vector<UniqueFd> fds;
    const auto event = wire::decode_event(agent_->receive_packet(fds));
    return event ? fmt::format("ok {} {}", event->what, event->share) : "gone";
  }
  if (verb == "event-then-free") {
    std::vector<UniqueFd> fds;
    const auto event = wire::decode_event(agent_->receive_packet(fds));
    if (!event || !session_->free(number(1)).body) return "gone";
    return fmt::format("ok {}", event->what);
  }
  if (verb == "mint") {
    const auto reply = session_->mint(number(1));
    return said(reply, reply.body ? std::to_string(reply.body->blocks[0]) : "");
  }
  if (verb == "export") {
    const auto reply = session_->export_range(number(1), number(2), number(3),
                                              static_cast<std::uint32_t>(number(4)));
    return said(reply, reply.body
                           ? key_text_of(*reply.body) + " " + std::to_string(reply.body->share)
                           : "");
  }
  if (verb == "list") {
    std::vector<pid_t> pids;
    for (std::size_t i = 2; i < words.size(); ++i)
      pids.push_back(static_cast<pid_t>(number(i)));
    const auto reply = session_->list(words.at(1), pids);
    return said(reply, reply.body ? std::to_string(reply.body->listed) : "");
  }
  if (verb == "import") {
    const auto access = words.size() > 2 ? static_cast<std::uint32_t>(number(2)) : 0U;
    const auto reply = session_->import(words.at(1), access);
    return said(reply, reply.body ? fmt::format("{} {} {}", reply.body->share, reply.body->size,
                                                reply.body->access)
                                  : "");
  }
  if (verb == "close") return said(session_->close(number(1)));
  if (verb == "free") return said(session_->free(number(1)));
  if (verb == "withdraw") return said(session_->withdraw(words.at(1)));
  if (verb == "stat") {
    // Twice, as WireSession::stat().
    const auto first = session_->client.ask(wire::Stat{});
    if (!first.body) return said(first);
    const auto reply = session_->client.ask(wire::Stat{});
    return said(reply, reply.body ? std::to_string(reply.body->used) : "");
  }
  // Sends and does not read the answer.
  if (verb == "ask-import") {
    session_->client.send(wire::Import{.key = key_of(words.at(1))});
    return "ok";
  }
  if (verb == "ask-export") {
    session_->client.send(wire::Export{.block = number(1), .size = number(2)});
    return "ok";
  }
  // Memory: of a block or an import, at an offset.
  if (verb == "fill") {
    std::fill_n(address(words), number(3), static_cast<std::byte>(number(4)));
    return "ok";
  }
  if (verb == "peek") return fmt::format("ok {}", static_cast<int>(*address(words)));
  if (verb == "where")
    return fmt::format("ok {}", reinterpret_cast<std::uintptr_t>(address(words)));
  if (verb == "populate") {
    const int failed = ::madvise(address(words), number(3), MADV_POPULATE_READ);
    return failed == 0 ? "ok" : fmt::format("error {}", errno);
  }
  // Expected to be its last word.
  if (verb == "touch") {
    ::signal(SIGSEGV, SIG_DFL);
    ::signal(SIGBUS, SIG_DFL);
    const volatile std::byte* place = address(words);
    return fmt::format("ok {}", static_cast<int>(*place));
  }
  if (verb == "scribble") {
    ::signal(SIGSEGV, SIG_DFL);
    *const_cast<volatile std::byte*>(address(words)) = std::byte{0xee};
    return "ok";
  }
  if (verb == "fork") return in_a_fork();
  if (verb == "become") {
    const auto id = static_cast<uid_t>(number(1));
    const bool became = ::setresuid(id, id, id) == 0;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Cleared by the change.
    return became ? "ok" : fmt::format("error {}", errno);
  }
  if (verb == "socket") return fmt::format("ok {}", session_->client.socket());
  if (verb == "export-until-gone") return export_until_gone(number(1), number(2));
  return "error no such command: " + verb;
}

const HelperProgram kWire("wire", [](Channel& channel) {
  Server server(channel);
  serve(channel, [&](const Words& words) { return server.answer(words); });
});

}  // namespace

// ---- WirePeer ----

WirePeer::Answer WirePeer::parse(const std::string& line) {
  Words words = split(line);
  const std::string outcome = words.at(0);
  words.erase(words.begin());
  if (outcome == "ok") return {.words = std::move(words)};
  if (outcome == "gone") return {.kind = Answer::Kind::kHungUp};
  if (outcome != "refused") throw Stuck("the helper says: " + line);
  Answer answer{.kind = Answer::Kind::kRefused,
                .reason = static_cast<Reason>(std::stoul(words.at(0)))};
  for (std::size_t i = 0; i < answer.number.size(); ++i)
    answer.number[i] = std::stoull(words.at(i + 1));
  return answer;
}

Words WirePeer::must(const std::string& line) {
  Answer answer = run(line);
  if (!answer.ok()) {
    throw Stuck(fmt::format("{}: {}", line,
                            answer.hung_up() ? "the broker hung up" : name_of(answer.reason)));
  }
  return std::move(answer.words);
}

WireSession::Export WirePeer::share_block(std::uint64_t size, int value, std::uint32_t flags) {
  const std::uint64_t block = std::stoull(must(fmt::format("mint {}", size)).at(0));
  must(fmt::format("fill {} 0 {} {}", block, size, value));
  const Words made = must(fmt::format("export {} 0 {} {}", block, size, flags));
  return {.block = block, .key = made.at(0), .share = std::stoull(made.at(1))};
}

}  // namespace hufu::test
