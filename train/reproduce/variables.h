// Variables in the texts of a table. "{name}" stands for the value of a variable, and "{tokens / length}" for
// the result of operations, which are carried out from the left: * / div min max. `div` rounds down.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

using Json = nlohmann::ordered_json;
// Returns the value of a variable, or std::nullopt if there is none with this name.
using Lookup = std::function<std::optional<Json>(const std::string& name)>;

// Returns a lookup in the entries of `object` and then in `outer`.
Lookup make_lookup(Json object, Lookup outer = nullptr);

// Returns the text with the values of placeholders. Placeholders with unknown variables stay. Throws
// ConfigError if an operand is no number, or if variables refer to each other in a cycle.
std::string fill_text(const std::string& text, const Lookup& lookup);
std::vector<std::string> fill_texts(std::vector<std::string> texts, const Lookup& lookup);
// Fills all texts in `value`. A text that is a single placeholder becomes the value of the variable.
Json fill_json(const Json& value, const Lookup& lookup);

// Returns the names of the scales: smoke, small, paper.
const std::vector<std::string>& list_table_scales();
// Returns `value` at a scale. An object whose keys are scales or "else" becomes the value of the scale. If it
// has none, its entry is left out. In a list, a list that was chosen in this way becomes several elements.
Json select_scale(const Json& value, const std::string& scale);

}  // namespace tapeformer
