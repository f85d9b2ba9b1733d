#include "base/result.h"

#include <array>
#include <cstring>

namespace hufu {

Error fail_errno(std::string_view what, int sys_errno) {
  std::array<char, 128> buffer{};
  // The GNU variant: returns the text, which need not be in the buffer.
  const char* reason = ::strerror_r(sys_errno, buffer.data(), buffer.size());
  Error error = fail(Errc::kSystem, Reason::kSystem, "{}: {} (errno {})", what, reason, sys_errno);
  error.sys_errno = sys_errno;
  return error;
}

}  // namespace hufu
