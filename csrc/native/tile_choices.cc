#include "tile_choices.h"

#include <mutex>

namespace pfb {
namespace {

std::mutex choices_mutex;
TileChoices choices;

}  // namespace

std::optional<int> KnownTile(const std::vector<int>& key) {
  const std::lock_guard<std::mutex> lock(choices_mutex);
  const auto found = choices.find(key);
  if (found == choices.end()) return std::nullopt;
  return found->second;
}

void RememberTile(const std::vector<int>& key, int tile) {
  const std::lock_guard<std::mutex> lock(choices_mutex);
  choices[key] = tile;
}

TileChoices AllTiles() {
  const std::lock_guard<std::mutex> lock(choices_mutex);
  return choices;
}

}  // namespace pfb
