// Helpers for attention kinds that compute softmax attention with a sparse pattern.
#pragma once

#include "models/attention/attention.h"
#include "ops/softmax_attention.h"

namespace tapeformer {

// The members `pattern` and `key_blocks` of SoftmaxAttentionOptions.
struct SparsePattern {
  KeyPattern pattern;
  Tensor key_blocks = {};
};

// Argument of PatternFunction: properties of the sequences and of the layer.
struct PatternContext {
  int64_t length, heads;
  bool causal;  // whether keys after a query are masked
  Device device;
  std::string name;  // full name of the layer
};

// A function that returns the pattern of a layer. With a causal mask, the keys of a query must not depend on
// PatternContext::length, because decoding uses the pattern for AttentionStateOptions::capacity tokens.
using PatternFunction = std::function<SparsePattern(const PatternContext& context)>;

// Return a softmax attention layer in which each query attends only to the keys that `pattern` selects.
// `dropout` is the probability of dropping an attention weight.
std::unique_ptr<Attention> make_softmax_attention(const KeyPattern& pattern, double dropout);
std::unique_ptr<Attention> make_softmax_attention(PatternFunction pattern, double dropout);

AttentionCapabilities make_sparse_attention_capabilities();

// Return the number of multiply-adds in a causal pass of one head: the mean of the heads if their patterns
// differ, or the number if a query attends to min(keys, length / 2) keys on average.
double count_pattern_multiply_adds(const PatternFunction& pattern, const AttentionSize& size);
double count_sparse_attention_multiply_adds(double keys, const AttentionSize& size);

// Throws OptionError unless the option `name` is at most `length`, the length of the sequences.
void check_option_at_most_length(const OptionValues& options, const char* name, int64_t length);

}  // namespace tapeformer
