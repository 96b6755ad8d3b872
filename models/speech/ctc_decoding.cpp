#include "models/speech/ctc_decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/threads/threads.h"
#include "ops/lengths.h"

namespace tapeformer {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  const double largest = std::max(a, b), smallest = std::min(a, b);
  return largest == kImpossible ? kImpossible : largest + std::log1p(std::exp(smallest - largest));
}

// Checks the arguments and returns the lengths as int64 on the CPU.
Tensor check_inputs(const char* op, const Tensor& logits, const Tensor& lengths, int64_t blank) {
  check(logits.rank() == 3 && is_floating(logits.dtype()), op,
        "logits must be floating (batch, frames, classes), not ", logits.shape());
  check(blank >= 0 && blank < logits.size(2), op, "blank ", blank, " is not in [0, ", logits.size(2), ")");
  return prepare_lengths(op, "length", lengths, logits.size(0), logits.size(1));
}

// Throws DivergenceError if a logit of the frame is NaN or +inf, or if all logits of the frame are -inf.
void check_logits(const char* op, const double* row, int64_t classes, int64_t sequence, int64_t frame) {
  double largest = kImpossible;
  bool numbers = true;
  for (int64_t c = 0; c < classes; ++c) {
    numbers = numbers && !std::isnan(row[c]);
    largest = std::max(largest, row[c]);
  }
  if (!numbers || !std::isfinite(largest))
    throw DivergenceError(concat_text(op, ": the logits of sequence ", sequence, " at step ", frame,
                                      " are not finite numbers"));
}

// Log-probabilities of a prefix of the labels. A path gives a prefix if merging repeated classes and removing
// blanks yields the prefix. `in_blank` is the total log-probability of the paths that give the prefix and end
// in the blank. `in_label` is the total log-probability of the paths that give the prefix and end in a label.
struct Score {
  double in_blank = kImpossible, in_label = kImpossible;
  double language = 0;  // weighted bigram log-probabilities plus label bonuses of the prefix
  double acoustic() const { return log_add(in_blank, in_label); }
  double total() const { return acoustic() + language; }
};
using Prefixes = std::map<CtcLabels, Score>;

std::vector<double> log_probabilities(const double* x, int64_t classes) {
  std::vector<double> result(x, x + classes);
  const double largest = *std::max_element(result.begin(), result.end());
  double total = 0;
  for (const double value : result) total += std::exp(value - largest);
  for (double& value : result) value -= largest + std::log(total);
  return result;
}

class BeamSearch {
 public:
  explicit BeamSearch(const CtcBeamOptions& options) : options_(options) {
    prefixes_[{}] = Score{.in_blank = 0};
  }

  void add_frame(const std::vector<double>& frame) {
    Prefixes next;
    for (const auto& [prefix, score] : prefixes_) {
      const double total = score.acoustic();
      Score& unchanged = next[prefix];
      unchanged.language = score.language;
      unchanged.in_blank = log_add(unchanged.in_blank, total + frame[static_cast<size_t>(options_.blank)]);
      if (!prefix.empty())
        unchanged.in_label =
            log_add(unchanged.in_label, score.in_label + frame[static_cast<size_t>(prefix.back())]);
      for (int64_t label = 0; label < static_cast<int64_t>(frame.size()); ++label) {
        if (label == options_.blank) continue;
        // A repeated label extends the prefix only after a blank. Without the blank, CTC merges the two
        // labels.
        const double before = !prefix.empty() && prefix.back() == label ? score.in_blank : total;
        if (before == kImpossible) continue;
        CtcLabels longer = prefix;
        longer.push_back(label);
        Score& extended = next[std::move(longer)];
        extended.language = score.language + language(prefix, label);
        extended.in_label = log_add(extended.in_label, before + frame[static_cast<size_t>(label)]);
      }
    }
    prefixes_ = std::move(next);
    prune();
  }

  std::vector<CtcHypothesis> result() const {
    std::vector<CtcHypothesis> list;
    for (const auto& [prefix, score] : prefixes_) list.push_back({prefix, score.total()});
    std::stable_sort(list.begin(), list.end(),
                     [](const CtcHypothesis& a, const CtcHypothesis& b) { return a.score > b.score; });
    return list;
  }

 private:
  double language(const CtcLabels& prefix, int64_t label) const {
    if (!options_.bigram_log_probabilities.defined()) return options_.label_bonus;
    const int64_t last = prefix.empty() ? options_.blank : prefix.back();
    return options_.label_bonus +
           options_.bigram_weight *
               options_.bigram_log_probabilities
                   .data<double>()[last * options_.bigram_log_probabilities.size(1) + label];
  }

  void prune() {
    if (static_cast<int64_t>(prefixes_.size()) <= options_.beam_size) return;
    std::vector<CtcHypothesis> list = result();
    list.resize(static_cast<size_t>(options_.beam_size));
    Prefixes kept;
    for (const CtcHypothesis& hypothesis : list) kept.insert(prefixes_.extract(hypothesis.labels));
    prefixes_ = std::move(kept);
  }

  const CtcBeamOptions& options_;
  Prefixes prefixes_;
};

}  // namespace

std::vector<CtcLabels> ctc_greedy_decode(const Tensor& logits, const Tensor& lengths, int64_t blank) {
  const Tensor counts = check_inputs("ctc_greedy_decode", logits, lengths, blank);
  const Tensor x = logits.alias().to(kCpu).to(DType::float64);
  const int64_t frames = x.size(1), classes = x.size(2);
  std::vector<CtcLabels> result(static_cast<size_t>(x.size(0)));
  for (int64_t b = 0; b < x.size(0); ++b) {
    int64_t last = blank;
    for (int64_t t = 0; t < counts.data<int64_t>()[b]; ++t) {
      const double* const row = x.data<double>() + (b * frames + t) * classes;
      check_logits("ctc_greedy_decode", row, classes, b, t);
      const int64_t best = std::max_element(row, row + classes) - row;
      if (best != last && best != blank) result[static_cast<size_t>(b)].push_back(best);
      last = best;
    }
  }
  return result;
}

std::vector<std::vector<CtcHypothesis>> ctc_beam_search(const Tensor& logits, const Tensor& lengths,
                                                        const CtcBeamOptions& options) {
  constexpr const char* kOp = "ctc_beam_search";
  const Tensor counts = check_inputs(kOp, logits, lengths, options.blank);
  check(options.beam_size > 0, kOp, "beam ", options.beam_size, " must be positive");
  const Tensor x = logits.alias().to(kCpu).to(DType::float64);
  const int64_t frames = x.size(1), classes = x.size(2);
  check(!options.bigram_log_probabilities.defined() ||
            (options.bigram_log_probabilities.shape() == Shape{classes, classes} &&
             options.bigram_log_probabilities.dtype() == DType::float64 &&
             options.bigram_log_probabilities.is_contiguous()),
        kOp, "bigram_log_probabilities must be float64 ", Shape{classes, classes});
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t t = 0; t < counts.data<int64_t>()[b]; ++t)
      check_logits(kOp, x.data<double>() + (b * frames + t) * classes, classes, b, t);
  std::vector<std::vector<CtcHypothesis>> result(static_cast<size_t>(x.size(0)));
  parallel_for(x.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      BeamSearch search(options);
      for (int64_t t = 0; t < counts.data<int64_t>()[b]; ++t)
        search.add_frame(log_probabilities(x.data<double>() + (b * frames + t) * classes, classes));
      result[static_cast<size_t>(b)] = search.result();
    }
  });
  return result;
}

}  // namespace tapeformer
