#pragma once

// What a client tells the broker without saying it: memory that the client writes and the broker
// reads whenever somebody asks. The other direction of os/published.h, and just as cheap: a store,
// no system call, no message.
//
// The broker makes the file and seals its size, so that no writer can pull it from under the
// reader. What is in it is only what the client wrote: the reader passes the numbers on as
// somebody's claim and decides nothing by them.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hufu::os {

// The reader's side. Move-only.
class ReportedView {
 public:
  // `bytes` is whole pages.
  static Result<ReportedView> make(const char* name, std::size_t bytes);

  ~ReportedView();
  ReportedView(ReportedView&& other) noexcept
      : fd_(std::move(other.fd_)),
        base_(std::exchange(other.base_, nullptr)),
        bytes_(other.bytes_) {}
  ReportedView& operator=(ReportedView&&) = delete;
  ReportedView(const ReportedView&) = delete;
  ReportedView& operator=(const ReportedView&) = delete;

  std::uint64_t word(std::size_t index) const;

  // A descriptor to hand out: read-write, a file description of its own.
  Result<UniqueFd> writer() const;

 private:
  ReportedView(UniqueFd fd, const std::byte* base, std::size_t bytes)
      : fd_(std::move(fd)), base_(base), bytes_(bytes) {}

  UniqueFd fd_;
  const std::byte* base_;
  std::size_t bytes_;
};

// The writer's side. Not inherited by fork.
class ReportedMemory {
 public:
  // Checks that the file is what a reader made: sealed, and large enough.
  static Result<ReportedMemory> map(int fd, std::size_t bytes);

  ~ReportedMemory();
  ReportedMemory(ReportedMemory&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  ReportedMemory& operator=(ReportedMemory&&) = delete;
  ReportedMemory(const ReportedMemory&) = delete;
  ReportedMemory& operator=(const ReportedMemory&) = delete;

  std::size_t words() const { return bytes_ / sizeof(std::uint64_t); }
  std::atomic<std::uint64_t>& word(std::size_t index) const;

 private:
  ReportedMemory(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_;
  std::size_t bytes_;
};

}  // namespace hufu::os
