// Attention patterns: lists of attention kinds that repeat over the layers of a model. A pattern has a
// capability if all kinds in the pattern have the capability.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/attention/attention.h"

namespace tapeformer {

// An attention kind with its options.
struct AttentionLayerChoice {
  std::string kind = "linear";
  OptionValues options = {};  // values from AttentionKind::make_options() or default_options()
};

// The attention choices of the layers of a model. Layer i uses the choice with index i modulo size(). A
// pattern has at least one choice.
using AttentionPattern = std::vector<AttentionLayerChoice>;

// Returns the choice of a layer, counted from 0. Throws OptionError if the pattern is empty.
const AttentionLayerChoice& find_layer_choice(const AttentionPattern& pattern, int64_t layer);
// Returns the names of the kinds, such as "local, local, lsh".
std::string join_kind_names(const AttentionPattern& pattern);
bool has_several_kinds(const AttentionPattern& pattern);

// Return whether all kinds in the pattern have a capability or a property.
bool supports(const AttentionPattern& pattern, Capability AttentionCapabilities::*capability);
bool supports(const AttentionPattern& pattern, bool AttentionCapabilities::*property);

// Returns describe_unsupported() for the first kind without the capability. If the pattern has several kinds,
// the text starts with `layer N: `. Returns "" if all kinds have the capability.
std::string describe_unsupported(const AttentionPattern& pattern, const std::string& what,
                                 Capability AttentionCapabilities::*capability);

// Returns the maximum of SegmentMemorySize::token_span() over the choices, in tokens. The second function
// only counts memories of inputs, and not memories of states.
int64_t compute_max_memory_span(const AttentionPattern& pattern);
int64_t compute_max_input_memory_span(const AttentionPattern& pattern);

// Returns a new attention object for layer `layer`; see make_attention() in attention.h. If the pattern has
// several kinds, the option name in an OptionError is "attention_options.KIND.NAME".
std::unique_ptr<Attention> make_attention(const AttentionPattern& pattern, int64_t layer,
                                          const AttentionSetup& setup);
// Returns the sizes of the heads of a layer in a model with the sizes `model`. Throws OptionError as
// make_attention().
HeadSizes get_head_sizes(const AttentionPattern& pattern, int64_t layer, const HeadSizes& model);
// Returns the index of the first layer that has the same kind and options as `layer`.
int64_t find_first_equal_layer(const AttentionPattern& pattern, int64_t layer);
// Throws OptionError if the options of a choice are invalid for sequences of `length` tokens. If the pattern
// has several kinds, the option name in the error is "attention_options.KIND.NAME".
void check_attention_length(const AttentionPattern& pattern, int64_t length);

}  // namespace tapeformer
