// Which tile of Winograd's algorithm was the fastest, by measurement, for each convolution.
#pragma once

#include <map>
#include <optional>
#include <vector>

namespace pfb {

// (batch, height, width, channels, out batch, height, width, channels, pads, threads) -> tile, 0
// for the direct algorithm.
using TileChoices = std::map<std::vector<int>, int>;

// What is known in this process of `key`.  All three may be called from any thread.
std::optional<int> KnownTile(const std::vector<int>& key);
void RememberTile(const std::vector<int>& key, int tile);
TileChoices AllTiles();

}  // namespace pfb
