// Names for what memory is used for; the calling thread has a current one.
#pragma once

#include <cstdint>

namespace pfb::memory {

// The number of `name`; always the same for one name.
std::uint32_t TagOf(const char* name);

// "" for 0 and unknown numbers.
const char* TagName(std::uint32_t tag);

std::uint32_t CurrentTag();
std::uint32_t SetCurrentTag(std::uint32_t tag);

// Around fork.
void LockTags();
void UnlockTags();

}  // namespace pfb::memory
