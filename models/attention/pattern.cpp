#include "models/attention/pattern.h"

#include <algorithm>

#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

constexpr const char* kOptionPrefix = "attention_options.";

// Returns f(). If f throws OptionError for "attention_options.NAME" and the pattern has several kinds,
// changes the name to "attention_options.KIND.NAME".
template <class F>
auto prefix_kind_in_errors(const AttentionPattern& pattern, const std::string& kind, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const OptionError& error) {
    const auto& [option, problem] = error.problem();
    if (!has_several_kinds(pattern) || !option.starts_with(kOptionPrefix)) throw;
    throw OptionError(kOptionPrefix + kind + "." + option.substr(std::string(kOptionPrefix).size()), problem);
  }
}

int64_t find_longest_memory(const AttentionPattern& pattern, bool counts_states) {
  int64_t longest = 0;
  for (const AttentionLayerChoice& choice : pattern) {
    const SegmentMemorySize size = find_attention_kind(choice.kind).get_segment_memory_size(choice.options);
    if (counts_states || !size.stores_state) longest = std::max(longest, size.token_span());
  }
  return longest;
}

}  // namespace

const AttentionLayerChoice& find_layer_choice(const AttentionPattern& pattern, int64_t layer) {
  if (pattern.empty()) throw OptionError("attention", "expected at least one attention kind");
  return pattern[static_cast<size_t>(layer) % pattern.size()];
}

std::string join_kind_names(const AttentionPattern& pattern) {
  std::string text;
  for (const AttentionLayerChoice& choice : pattern) text += (text.empty() ? "" : ", ") + choice.kind;
  return text;
}

bool has_several_kinds(const AttentionPattern& pattern) {
  return std::any_of(pattern.begin(), pattern.end(),
                     [&](const AttentionLayerChoice& choice) { return choice.kind != pattern.front().kind; });
}

bool supports(const AttentionPattern& pattern, Capability AttentionCapabilities::*capability) {
  return std::all_of(pattern.begin(), pattern.end(), [&](const AttentionLayerChoice& choice) {
    return static_cast<bool>(find_attention_kind(choice.kind).capabilities.*capability);
  });
}

bool supports(const AttentionPattern& pattern, bool AttentionCapabilities::*property) {
  return std::all_of(pattern.begin(), pattern.end(), [&](const AttentionLayerChoice& choice) {
    return find_attention_kind(choice.kind).capabilities.*property;
  });
}

std::string describe_unsupported(const AttentionPattern& pattern, const std::string& what,
                                 Capability AttentionCapabilities::*capability) {
  for (size_t layer = 0; layer < pattern.size(); ++layer) {
    const AttentionKind& kind = find_attention_kind(pattern[layer].kind);
    const Capability& missing = kind.capabilities.*capability;
    if (missing) continue;
    const std::string prefix = has_several_kinds(pattern) ? "layer " + std::to_string(layer) + ": " : "";
    return prefix + describe_unsupported(kind, what, missing);
  }
  return "";
}

int64_t compute_max_memory_span(const AttentionPattern& pattern) {
  return find_longest_memory(pattern, true);
}
int64_t compute_max_input_memory_span(const AttentionPattern& pattern) {
  return find_longest_memory(pattern, false);
}

std::unique_ptr<Attention> make_attention(const AttentionPattern& pattern, int64_t layer,
                                          const AttentionSetup& setup) {
  const AttentionLayerChoice& choice = find_layer_choice(pattern, layer);
  return prefix_kind_in_errors(pattern, choice.kind,
                               [&] { return make_attention(choice.kind, choice.options, setup); });
}

HeadSizes get_head_sizes(const AttentionPattern& pattern, int64_t layer, const HeadSizes& model) {
  const AttentionLayerChoice& choice = find_layer_choice(pattern, layer);
  return prefix_kind_in_errors(pattern, choice.kind, [&] {
    return call_with_option_prefix("attention_options", [&] {
      return find_attention_kind(choice.kind).get_sizes(choice.options, model);
    });
  });
}

int64_t find_first_equal_layer(const AttentionPattern& pattern, int64_t layer) {
  const AttentionLayerChoice& choice = find_layer_choice(pattern, layer);
  int64_t first = 0;
  for (const AttentionLayerChoice* other = &pattern.front();
       other->kind != choice.kind || other->options.values_by_name() != choice.options.values_by_name();
       ++other)
    ++first;
  return first;
}

void check_attention_length(const AttentionPattern& pattern, int64_t length) {
  for (const AttentionLayerChoice& choice : pattern)
    prefix_kind_in_errors(pattern, choice.kind,
                          [&] { check_attention_length(choice.kind, choice.options, length); });
}

}  // namespace tapeformer
