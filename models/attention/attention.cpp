#include "models/attention/attention.h"

#include <algorithm>

namespace tapeformer {

std::unique_ptr<AttentionState> Attention::make_state(const StateShape&) const {
  throw std::invalid_argument("this attention kind has no recurrent form; generate with --mode recompute");
}

void Attention::step(const Tensor&, const Tensor&, const Tensor&, AttentionState&, const Tensor&) const {
  throw std::invalid_argument("this attention kind has no recurrent form; generate with --mode recompute");
}

const std::vector<AttentionKind>& attention_kinds() {
  static const auto* const kinds =
      new std::vector<AttentionKind>{linear_attention_kind(), softmax_attention_kind(), lsh_attention_kind()};
  return *kinds;
}

const AttentionKind& attention_kind(const std::string& name) {
  const auto& kinds = attention_kinds();
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const AttentionKind& kind) { return kind.name == name; });
  if (found != kinds.end()) return *found;
  std::vector<std::string> names;
  std::string list;
  for (const AttentionKind& kind : kinds) {
    names.push_back(kind.name);
    list += (list.empty() ? "" : ", ") + kind.name;
  }
  const std::string near = nearest_name(name, names);
  throw ConfigError("unknown attention kind \"" + name + "\" (known: " + list + ")" +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

}  // namespace tapeformer
