#pragma once

// What a broker tells everybody at once: memory that it writes and all others can only read, and a
// word in it by which the kernel says that the broker has ended.
//
// Reading costs a load and no system call, so a cached answer can be checked each time it is given.
// The file is sealed against future writes after its one writer mapped it: a reader cannot become a
// writer, by reopening or otherwise. For the word the writer holds a robust lock that it never
// gives back; when its process ends (or execs), however it ends, the kernel marks the lock.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hufu::os {

// The writer's side. Move-only.
class PublishedMemory {
 public:
  // Zeros, `bytes` of them rounded up to pages.
  static Result<PublishedMemory> make(const char* name, std::size_t bytes);

  ~PublishedMemory();
  PublishedMemory(PublishedMemory&& other) noexcept;
  PublishedMemory& operator=(PublishedMemory&&) = delete;
  PublishedMemory(const PublishedMemory&) = delete;
  PublishedMemory& operator=(const PublishedMemory&) = delete;

  std::atomic<std::uint64_t>& word(std::size_t index) const;

  // A descriptor to hand out: read-only, a file description of its own.
  Result<UniqueFd> reader() const;

  // Claims the life word, at the start of the memory, for the calling thread; that thread must
  // live as long as what the word stands for.
  void claim_life_word();

 private:
  PublishedMemory(UniqueFd fd, std::byte* base, std::size_t bytes)
      : fd_(std::move(fd)), base_(base), bytes_(bytes) {}

  UniqueFd fd_;
  std::byte* base_;
  std::size_t bytes_;
};

// The reader's side. Checks that the file is what a writer made: sealed, and large enough.
class PublishedView {
 public:
  static Result<PublishedView> map(int fd, std::size_t bytes);

  PublishedView() = default;
  ~PublishedView();
  PublishedView(PublishedView&& other) noexcept;
  PublishedView& operator=(PublishedView&& other) noexcept;
  PublishedView(const PublishedView&) = delete;
  PublishedView& operator=(const PublishedView&) = delete;

  bool valid() const { return base_ != nullptr; }
  std::uint64_t word(std::size_t index) const;  // Acquire.

  // Has the thread that claimed the life word ended?
  bool writer_ended() const;

 private:
  PublishedView(const std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}

  const std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hufu::os
