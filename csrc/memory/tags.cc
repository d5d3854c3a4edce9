#include "tags.h"

#include <deque>
#include <mutex>
#include <string>

namespace pfb::memory {
namespace {

// Never destroyed: blocks may be freed after the end of main.
struct Table {
  std::mutex mutex;
  std::deque<std::string> names;  // a deque: its strings stay where they are
};

Table& Names() {
  static Table& table = *new Table();
  return table;
}

thread_local std::uint32_t current = 0;

}  // namespace

std::uint32_t TagOf(const char* name) {
  Table& table = Names();
  const std::lock_guard<std::mutex> lock(table.mutex);
  for (std::size_t i = 0; i < table.names.size(); ++i) {
    if (table.names[i] == name) return static_cast<std::uint32_t>(i + 1);
  }
  table.names.emplace_back(name);
  return static_cast<std::uint32_t>(table.names.size());
}

const char* TagName(std::uint32_t tag) {
  Table& table = Names();
  const std::lock_guard<std::mutex> lock(table.mutex);
  if (tag == 0 || tag > table.names.size()) return "";
  return table.names[tag - 1].c_str();
}

std::uint32_t CurrentTag() { return current; }

std::uint32_t SetCurrentTag(std::uint32_t tag) {
  const std::uint32_t before = current;
  current = tag;
  return before;
}

void LockTags() { Names().mutex.lock(); }
void UnlockTags() { Names().mutex.unlock(); }

}  // namespace pfb::memory
