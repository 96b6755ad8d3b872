#include "models/attention/attention.h"

#include <algorithm>
#include <set>

#include "models/layers/option_error.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kNoRecurrentForm = "this attention kind has no recurrent form";

bool accepts(const OptionSpec&, bool) {
  return true;
}
bool accepts(const OptionSpec& option, double x) {
  return x >= option.min && x <= option.max;
}
bool accepts(const OptionSpec& option, int64_t x) {
  return accepts(option, static_cast<double>(x));
}
bool accepts(const OptionSpec& option, const std::string& text) {
  return option.choices.empty() ||
         std::find(option.choices.begin(), option.choices.end(), text) != option.choices.end();
}
template <class T>
bool accepts(const OptionSpec& option, const std::vector<T>& list) {
  return std::all_of(list.begin(), list.end(), [&](const T& element) { return accepts(option, element); });
}

bool accepts_default(const OptionSpec& option) {
  return std::visit([&](const auto& value) { return accepts(option, value); }, option.default_value);
}

void check_kind(const std::deque<AttentionKind>& kinds, const AttentionKind& kind) {
  const auto require = [&](bool condition, const std::string& problem) {
    if (!condition) throw std::invalid_argument("attention kind \"" + kind.name + "\": " + problem);
  };
  require(!kind.name.empty(), "the name is empty");
  require(std::none_of(kinds.begin(), kinds.end(),
                       [&](const AttentionKind& other) { return other.name == kind.name; }),
          "the name is already registered");
  require(static_cast<bool>(kind.make), "`make` is empty");
  std::set<std::string> names;
  for (const OptionSpec& option : kind.options) {
    require(!option.name.empty(), "an option has no name");
    require(names.insert(option.name).second, "two options are named \"" + option.name + "\"");
    require(accepts_default(option), "the default value of option \"" + option.name + "\" is not valid");
  }
  for (const OptionSpec& option : kind.options)
    require(option.used_if.option.empty() || names.contains(option.used_if.option),
            "`used_if` of option \"" + option.name + "\" names no option");
}

// Throws OptionError if `options` sets an option that has no effect because of the values of other options.
void check_used(const AttentionKind& kind, const OptionValues& options) {
  for (const UnusedOption& unused : find_unused_options(kind.options, options))
    throw OptionError(unused.name, unused.reason);
}

std::deque<AttentionKind> make_built_in_kinds() {
  std::deque<AttentionKind> kinds{make_linear_attention_kind(),
                                  make_softmax_attention_kind(),
                                  make_lsh_attention_kind(),
                                  make_shared_softmax_attention_kind(),
                                  make_performer_attention_kind(),
                                  make_linformer_attention_kind(),
                                  make_synthesizer_attention_kind(),
                                  make_memory_compressed_attention_kind(),
                                  make_sinkhorn_attention_kind(),
                                  make_routing_attention_kind(),
                                  make_transformer_xl_attention_kind(),
                                  make_compressive_attention_kind(),
                                  make_isab_attention_kind(),
                                  make_etc_attention_kind()};
  for (AttentionKind& kind : make_pattern_attention_kinds()) kinds.push_back(std::move(kind));
  return kinds;
}

std::deque<AttentionKind>& registry() {
  static auto& kinds = *new std::deque<AttentionKind>(make_built_in_kinds());
  return kinds;
}

}  // namespace

std::unique_ptr<AttentionState> Attention::make_state(const AttentionStateOptions&) const {
  throw std::invalid_argument(kNoRecurrentForm);
}

void Attention::step(const Tensor&, const Tensor&, const Tensor&, AttentionState&, const Tensor&) const {
  throw std::invalid_argument(kNoRecurrentForm);
}

Tensor Attention::prepend_memory(const Tensor& x, const ForwardContext& context,
                                 const std::string& name) const {
  if (!context.memory) return x;
  context.memory->write(name, x);
  const Tensor rows = context.memory->read(name, x.size(0));
  return rows.defined() ? concat({rows.to(x.dtype()), x}, 1) : x;
}

void Attention::observe_input(const Tensor&, AttentionState&) const {}

OptionValues AttentionKind::make_options(
    const std::vector<std::pair<std::string, OptionValue>>& replaced) const {
  OptionValues result = default_options();
  for (const auto& [option, value] : replaced) {
    const auto found = result.values_by_name().find(option);
    if (found == result.values_by_name().end()) throw OptionError(option, "unknown option");
    if (found->second.index() != value.index()) throw OptionError(option, "wrong type");
    result.set(option, value);
  }
  return result;
}

void register_attention_kind(AttentionKind kind) {
  check_kind(registry(), kind);
  registry().push_back(std::move(kind));
}

const std::deque<AttentionKind>& list_attention_kinds() {
  return registry();
}

const AttentionKind& find_attention_kind(const std::string& name) {
  const auto& kinds = list_attention_kinds();
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const AttentionKind& kind) { return kind.name == name; });
  if (found != kinds.end()) return *found;
  std::vector<std::string> names;
  std::string list;
  for (const AttentionKind& kind : kinds) {
    names.push_back(kind.name);
    list += (list.empty() ? "" : ", ") + kind.name;
  }
  const std::string nearest = find_nearest_name(name, names);
  throw ConfigError("unknown attention kind \"" + name + "\" (known: " + list + ")" +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

std::unique_ptr<Attention> make_attention(const std::string& name, const OptionValues& options,
                                          const AttentionSetup& setup) {
  const AttentionKind& kind = find_attention_kind(name);
  const Capability& drops_weights = kind.capabilities.weight_dropout;
  if (setup.dropout > 0 && !drops_weights)
    throw OptionError("attention_dropout", describe_unsupported(kind, "dropout of weights", drops_weights));
  auto attention = call_with_option_prefix("attention_options", [&] {
    check_used(kind, options);
    return kind.make(options, setup);
  });
  if (!attention)
    throw std::invalid_argument("attention kind \"" + name + "\": `make` returned no attention");
  return attention;
}

void check_attention_length(const std::string& name, const OptionValues& options, int64_t length) {
  const AttentionKind& kind = find_attention_kind(name);
  if (kind.check_length)
    call_with_option_prefix("attention_options", [&] { kind.check_length(options, length); });
}

std::string describe_unsupported(const AttentionKind& kind, const std::string& what,
                                 const Capability& missing) {
  return "attention kind \"" + kind.name + "\" has no " + what + ": " + missing.reason();
}

}  // namespace tapeformer
