#pragma once

// For core*.cc alone: what every answer() of Core is made with. Where each request is answered:
//
//   core.cc           the door (who sent it, is it well formed, has it come before) and the ways
//                     to say no; batches
//   core_sessions.cc  HELLO, ATTACH, BYE; a session's beginning and end
//   core_blocks.cc    MINT, CHARGE, FREE; waiting for room
//   core_exports.cc   EXPORT, EXPORT_HANDLE, WITHDRAW, END_ALL, END_RANGE, LIST_PID,
//                     LIST_PROCESS; from a key or a handle to its share
//   core_imports.cc   IMPORT, CLOSE; grants that did not arrive, proofs of release
//   core_queries.cc   STAT, LIST, USAGE, WATCH, REPORT; events
//
// A new kind of request gets an answer() in the file of its subject. If its reply carries
// descriptors, Core::repeat() must be able to take them again.

#include <ctime>

#include "broker/core.h"

namespace hufu::broker {

struct Core::Asking {
  Session& session;
  std::uint64_t request;
  bool one_way;
  wire::Kind kind;
};

inline std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline policy::Verdict no(Reason reason, std::uint64_t n0 = 0, std::uint64_t n1 = 0,
                          std::uint64_t n2 = 0, std::uint64_t n3 = 0) {
  return {.reason = reason, .number = {n0, n1, n2, n3}};
}

inline wire::Refusal refusal_of(const policy::Verdict& verdict, int sys_errno = 0) {
  wire::Refusal body{};
  body.reason = static_cast<std::uint16_t>(verdict.reason);
  body.sys_errno = sys_errno;
  body.number = verdict.number;
  return body;
}

inline std::uint64_t number_of(std::int32_t pid) { return static_cast<std::uint32_t>(pid); }

// Another descriptor of the same open file.
Result<UniqueFd> dup_of(const UniqueFd& fd);

template <class Request>
Answer Core::reply(const Asking& asking, const typename wire::Protocol<Request>::Reply& body) {
  Answer result;
  result.frame = wire::encode(wire::Protocol<Request>::kKind, wire::kReply, asking.request, body);
  return result;
}

}  // namespace hufu::broker
