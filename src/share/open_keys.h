#pragma once

// OpenKeys: the fast way to open a key that is open already, and to close one but not for the last
// time. No lock, no system call; whatever it cannot do it leaves to its owner, who has a mutex.
//
//   cells   hash picks the first of eight neighbours; a key without a free cell there is slow, not
//           wrong
//     |
//     v
//   OpenKey  state = life 32 | opens 32     opens > 0: anybody may count it up, or down to 1
//            hash, address, what says that it is live
//
// The last close, the first open and everything else happen under the owner's mutex, between
// shut() and reopen(): opens is 0 then, and the fast way closed. Each of the two begins a new life.
// Whoever reads the fields compares the state before and after with one compare-and-swap, so it has
// read one life's fields, and counted in that life. That one CAS also decides between a last close
// and an open that comes at the same time. An OpenKey is reused, never freed, so a late reader
// reads an OpenKey, if perhaps another life of it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "share/client.h"

namespace hufu::share {

// Stands for a key. Two keyed universal hashes (NH) of 128 bits with random words of this process:
// two given keys share one with a chance of 2^-128, and who does not know the words cannot choose
// keys that do.
struct KeyHash {
  std::array<std::uint64_t, 4> words{};
  friend bool operator==(const KeyHash&, const KeyHash&) = default;
};

class KeyHasher {
 public:
  KeyHasher();
  KeyHash of(const char* key) const;

 private:
  static constexpr std::size_t kTextWords = 8;
  static constexpr std::size_t kSecretWords = kTextWords + 2;  // And for the length.
  std::array<std::uint64_t, 2 * kSecretWords> secret_{};
};

// What says that a grant still holds.
struct GrantWord {
  const Status* status = nullptr;  // Kept by the owner of OpenKeys for as long as that lives.
  std::uint32_t slot = 0;
  std::uint64_t live = 0;

  bool holds() const { return !status->life.writer_ended() && status->words.word(slot) == live; }
};

class OpenKeys {
 public:
  class Entry;

  OpenKeys();
  ~OpenKeys();
  OpenKeys(const OpenKeys&) = delete;
  OpenKeys& operator=(const OpenKeys&) = delete;

  // --- Any thread ---
  // One open more. Null when the key is not open, or its grant no longer holds.
  std::byte* open_again(const KeyHash& hash);
  // One open less. False when that is not for sure one of many.
  bool close_one_of_many(const KeyHash& hash);

  // --- One thread at a time ---
  // A fresh one is shut.
  Entry* enter(const KeyHash& hash, std::byte* base);
  // How often it was open; nobody else changes that until reopen().
  static std::uint32_t shut(Entry* entry);
  static void reopen(Entry* entry, const GrantWord& grant, std::uint32_t opens);
  // A shut one.
  void remove(Entry* entry);

 private:
  static constexpr std::size_t kCells = 4096;
  static constexpr std::size_t kNeighbours = 8;
  using Cell = std::atomic<Entry*>;

  Cell& cell(const KeyHash& hash, std::size_t neighbour) {
    return cells_[(hash.words[0] + neighbour) % kCells];
  }

  std::array<Cell, kCells> cells_{};
  std::deque<Entry> entries_;
  std::vector<Entry*> spare_;
};

}  // namespace hufu::share
