#pragma once

// A client of the broker that speaks the protocol by itself, without libhufu: what an attacker has,
// and what tells a fault of the broker from one of the library.
//
// WireClient says anything, well formed or not, and reports what came back. WireSession adds what
// an honest client keeps: its blocks and imports, mapped. The helper "wire" is a WireSession in
// another process (see WirePeer).

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/unique_fd.h"
#include "os/mapping.h"
#include "os/socket.h"
#include "support/child.h"
#include "support/helper.h"
#include "wire/codec.h"

namespace hufu::test {

// What came back: a reply, a refusal, or the end of the connection.
template <class R>
struct Reply {
  std::optional<typename wire::Protocol<R>::Reply> body;
  std::optional<wire::Refusal> refusal;
  std::vector<UniqueFd> fds;

  bool hung_up() const { return !body && !refusal; }
  // Reason::kNone when it was granted or the connection ended.
  Reason reason() const { return refusal ? static_cast<Reason>(refusal->reason) : Reason::kNone; }
};

class WireClient {
 public:
  // Throws Stuck when nobody listens there.
  explicit WireClient(const std::string& path);
  explicit WireClient(UniqueFd socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  void hang_up() { socket_.reset(); }

  // False when the broker has hung up.
  bool send_bytes(std::span<const std::byte> bytes);
  template <class R>
  bool send(const R& request, std::uint16_t flags = 0) {
    if constexpr (std::is_empty_v<R>) {
      return send_bytes(
          wire::encode(wire::Protocol<R>::kKind, flags, ++request_, wire::Empty{}).view());
    } else {
      return send_bytes(wire::encode(wire::Protocol<R>::kKind, flags, ++request_, request).view());
    }
  }
  // The answer to the last request, which was an R.
  template <class R>
  Reply<R> receive() {
    Reply<R> reply;
    const auto packet = receive_packet(reply.fds);
    if (packet.empty()) return reply;
    const auto answer = wire::decode_reply<R>(packet, request_);
    if (!answer) throw Stuck("the broker sent what is no answer to the request");
    if (const auto* refusal = std::get_if<wire::Refusal>(&*answer)) {
      reply.refusal = *refusal;
    } else {
      reply.body = std::get<typename wire::Protocol<R>::Reply>(*answer);
    }
    return reply;
  }
  template <class R>
  Reply<R> ask(const R& request) {
    if (!send(request)) return {};
    return receive<R>();
  }

  // Waits for a packet; empty at the end of the connection.
  std::vector<std::byte> receive_packet(std::vector<UniqueFd>& fds);
  bool hung_up();  // Waits for it; false when something else arrives.

 private:
  UniqueFd socket_;
  std::uint64_t request_ = 0;
};

wire::KeyText key_of(const std::string& text);

class WireSession {
 public:
  // Says HELLO, and throws Stuck unless it is answered.
  explicit WireSession(const std::string& path);
  // From connect() only: whoever calls this says HELLO by itself, or does not.
  struct Silent {};
  WireSession(const std::string& path, Silent) : client(path) {}

  Reply<wire::Hello> hello();
  // Mints, maps and commits one block.
  Reply<wire::Mint> mint(std::uint64_t size, PageSize page = PageSize::k4KiB);
  Reply<wire::Export> export_range(std::uint64_t block, std::uint64_t offset, std::uint64_t size,
                                   std::uint32_t flags = 0);
  Reply<wire::ListPid> list(const std::string& key, const std::vector<pid_t>& pids);
  // Maps what is granted.
  Reply<wire::Import> import(const std::string& key, std::uint32_t access = 0);
  Reply<wire::Close> close(std::uint64_t share);
  Reply<wire::Free> free(std::uint64_t block);
  Reply<wire::Withdraw> withdraw(const std::string& key);
  // Asked twice: the broker may look at one connection before another whose event is older, but not
  // twice. So whatever happened before this call is counted, the death of a process above all.
  wire::StatReply stat(std::uint32_t device = 0);

  // For a test that cannot go on without: mints a block of `size` filled with `value`, and exports
  // all of it.
  struct Export {
    std::uint64_t block;
    std::string key;
    std::uint64_t share;
  };
  Export share_block(std::uint64_t size, std::byte value, std::uint32_t flags = 0);

  std::byte* block(std::uint64_t id) { return blocks.at(id).base(); }
  std::byte* imported(std::uint64_t share) { return imports.at(share).base(); }

  WireClient client;
  std::map<std::uint64_t, os::GuardedMapping> blocks;
  std::map<std::uint64_t, os::GuardedMapping> imports;
};

// A WireSession in a helper. Each call is one line there and back.
class WirePeer {
 public:
  explicit WirePeer(Helper started) : helper(std::move(started)) {}

  struct Answer {
    enum class Kind : std::uint8_t { kOk, kRefused, kHungUp };
    Kind kind = Kind::kOk;
    Reason reason = Reason::kNone;
    std::array<std::uint64_t, 4> number{};  // Of a refusal.
    Words words;                            // Of an answer.

    bool ok() const { return kind == Kind::kOk; }
    bool hung_up() const { return kind == Kind::kHungUp; }
    std::uint64_t value(std::size_t index) const { return std::stoull(words.at(index)); }
  };
  static Answer parse(const std::string& line);

  Answer run(const std::string& line) { return parse(helper.ask(line)); }
  Answer connect() { return run("connect"); }
  Answer hello() { return run("hello"); }
  // The same, for a test that cannot go on when it fails.
  Words must(const std::string& line);

  WireSession::Export share_block(std::uint64_t size, int value, std::uint32_t flags = 0);

  pid_t pid() const { return helper.pid(); }
  Ending kill() { return helper.kill(); }

  Helper helper;
};

}  // namespace hufu::test
