#pragma once

// From a broker's refusal to the error a caller gets: the one table.
//
// A refusal travels as a number with numbers (wire::Refusal). Here it becomes what the caller
// branches on (Errc) and what a person reads: what was tried, what was in the way with its numbers,
// and what to do about it. A key never appears in a text; its public id does.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/reason.h"
#include "base/result.h"
#include "share/address.h"
#include "share/handle_name.h"
#include "wire/message.h"

namespace hufu::share {

struct RefusalContext {
  std::string_view what = {};    // What was tried: "import of key 1f0c...".
  std::string_view broker = {};  // Its socket's path; empty without a broker.
  BrokerMode mode = BrokerMode::kNone;
  std::uint32_t broker_uid = 0;
  std::int32_t gone_pid = 0;  // Of the broker this process used before, if that one ended.
  bool handle = false;        // It was about a shareable handle, not about a key.
};

Error to_error(const wire::Refusal& refusal, const RefusalContext& context);

// The same for what this process refuses by itself, so that both read alike. The numbers are those
// of base/reason.h.
Error to_error(Reason reason, const std::array<std::uint64_t, 4>& numbers,
               const RefusalContext& context, int sys_errno = 0);

// "import of key 1f0c..." for RefusalContext::what. Never the key itself.
std::string what_with_key(std::string_view verb, const char* key);

// "import of handle 1f0c...", or "... of a handle named by its token", which has no public name.
std::string what_with_handle(std::string_view verb, const HandleName& name);

// What a caller can branch on, for each reason.
Errc errc_of(Reason reason);

}  // namespace hufu::share
