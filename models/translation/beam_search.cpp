#include "models/translation/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/errors.h"
#include "core/threads/threads.h"
#include "ops/softmax.h"

namespace tapeformer {
namespace {

constexpr int64_t kSourceSurplus = 50;  // Vaswani et al. 2017, section 6.1
// The decoder drops the rows of finished sentences when at most this share of its sentences is unfinished.
constexpr double kCompactionShare = 0.75;

// A continuation of row `row` by a token. `log_probability` is that of the whole hypothesis.
struct Continuation {
  double log_probability;
  int64_t row, token;
  bool operator<(const Continuation& other) const {  // the better one first
    if (log_probability != other.log_probability) return log_probability > other.log_probability;
    return row != other.row ? row < other.row : token < other.token;
  }
};

// An unfinished hypothesis. Hypothesis i of a sentence is in row i of the rows of the sentence.
struct LiveHypothesis {
  std::vector<int64_t> tokens;
  double log_probability = 0;
};

// Writes the `count` most probable continuations of a row to `best`, in any order.
template <class T>
void find_best_tokens(const T* logits, int64_t vocabulary, double log_sum, int64_t row,
                      double log_probability, size_t count, std::vector<Continuation>& best) {
  constexpr int64_t kBlock = 64;
  best.clear();
  T lowest = -std::numeric_limits<T>::infinity();
  for (int64_t begin = 0; begin < vocabulary; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, vocabulary);
    T largest = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : largest)
    for (int64_t token = begin; token < end; ++token) largest = std::max(largest, logits[token]);
    if (largest <= lowest) continue;  // most blocks have none of the best tokens
    for (int64_t token = begin; token < end; ++token) {
      if (logits[token] <= lowest) continue;
      best.push_back({static_cast<double>(logits[token]), row, token});
      std::push_heap(best.begin(), best.end());
      if (best.size() < count) continue;
      if (best.size() > count) {
        std::pop_heap(best.begin(), best.end());
        best.pop_back();
      }
      lowest = static_cast<T>(best.front().log_probability);
    }
  }
  for (Continuation& one : best) one.log_probability += log_probability - log_sum;
}

// The beam of one sentence.
class SentenceBeam {
 public:
  SentenceBeam(const BeamSearchOptions& options, int64_t max_length)
      : options_(options), max_length_(max_length), live_(1) {}

  bool is_done() const { return is_done_; }
  const std::vector<LiveHypothesis>& live() const { return live_; }

  // Extends the beam by the best continuations of its live hypotheses, which are sorted. Appends the copies
  // of rows that the new hypotheses need to `copies`; `first_row` is the row of the first hypothesis.
  void extend(const std::vector<Continuation>& continuations, int64_t end_token, int64_t first_row,
              std::vector<RowCopy>& copies) {
    const auto beam = static_cast<size_t>(options_.beam_size);
    const int64_t length = ++length_;
    std::vector<Continuation> kept;
    for (size_t i = 0; i < continuations.size() && i < count_candidates(); ++i) {
      const Continuation& one = continuations[i];
      if (one.token == end_token)
        finish(live_[static_cast<size_t>(one.row)].tokens, one.log_probability, length);
      else if (kept.size() < beam)
        kept.push_back(one);
    }
    place(kept, first_row, copies);
    if (live_.empty() || length == max_length_ || cannot_improve()) end(length);
  }
  // Number of continuations of a sentence that a step examines. A greedy search examines only the best one,
  // so it ends with the first end token.
  size_t count_candidates() const {
    return options_.beam_size == 1 ? 1 : 2 * static_cast<size_t>(options_.beam_size);
  }

  std::vector<TranslationHypothesis> take_results() {
    if (finished_.size() > static_cast<size_t>(options_.hypotheses))
      finished_.resize(static_cast<size_t>(options_.hypotheses));
    return std::move(finished_);
  }

 private:
  TranslationHypothesis make_result(std::vector<int64_t> tokens, double log_probability, int64_t length,
                                    bool is_complete) const {
    return {std::move(tokens), log_probability,
            log_probability / compute_length_penalty(length, options_.length_penalty), is_complete};
  }

  void finish(std::vector<int64_t> tokens, double log_probability, int64_t length) {
    TranslationHypothesis result = make_result(std::move(tokens), log_probability, length, true);
    const auto at = std::upper_bound(finished_.begin(), finished_.end(), result.score,
                                     [](double s, const auto& other) { return s > other.score; });
    finished_.insert(at, std::move(result));
    if (finished_.size() > static_cast<size_t>(options_.beam_size)) finished_.pop_back();
  }

  // Places the kept continuations in rows: one continuation of a hypothesis stays in its row, and the others
  // get copies in the rows of hypotheses without continuation.
  void place(const std::vector<Continuation>& kept, int64_t first_row, std::vector<RowCopy>& copies) {
    const size_t rows = static_cast<size_t>(options_.beam_size);
    std::vector<int> taken(rows, -1);
    std::vector<size_t> homeless;
    for (size_t i = 0; i < kept.size(); ++i) {
      int& owner = taken[static_cast<size_t>(kept[i].row)];
      if (owner < 0)
        owner = static_cast<int>(i);
      else
        homeless.push_back(i);
    }
    size_t row = 0;
    for (const size_t i : homeless) {
      while (taken[row] >= 0) ++row;
      taken[row] = static_cast<int>(i);
      // At the first step, all rows have read the same token.
      if (length_ > 1) copies.push_back({first_row + kept[i].row, first_row + static_cast<int64_t>(row)});
    }
    std::vector<LiveHypothesis> next(rows);
    for (size_t r = 0; r < rows; ++r) {
      next[r].log_probability = -std::numeric_limits<double>::infinity();
      if (taken[r] < 0) continue;
      const Continuation& one = kept[static_cast<size_t>(taken[r])];
      next[r].tokens = live_[static_cast<size_t>(one.row)].tokens;
      next[r].tokens.push_back(one.token);
      next[r].log_probability = one.log_probability;
    }
    live_ = kept.empty() ? std::vector<LiveHypothesis>() : std::move(next);
  }

  // Returns true if no live hypothesis can become a result. Its score can at most be its log-probability
  // divided by the largest penalty.
  bool cannot_improve() const {
    const auto results = static_cast<size_t>(options_.hypotheses);
    if (finished_.size() < results) return false;
    double best = -std::numeric_limits<double>::infinity();
    for (const LiveHypothesis& one : live_) best = std::max(best, one.log_probability);
    return finished_[results - 1].score >=
           best / compute_length_penalty(max_length_, options_.length_penalty);
  }

  // Unfinished hypotheses complete the results if there are too few finished ones.
  void end(int64_t length) {
    is_done_ = true;
    std::erase_if(live_, [](const LiveHypothesis& one) { return !std::isfinite(one.log_probability); });
    std::stable_sort(live_.begin(), live_.end(),
                     [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
    for (LiveHypothesis& one : live_) {
      if (finished_.size() >= static_cast<size_t>(options_.hypotheses)) return;
      finished_.push_back(make_result(std::move(one.tokens), one.log_probability, length, false));
    }
  }

  BeamSearchOptions options_;
  int64_t max_length_, length_ = 0;  // in tokens, with the end token
  bool is_done_ = false;
  std::vector<LiveHypothesis> live_;
  std::vector<TranslationHypothesis> finished_;  // the best first; after end(), also unfinished ones
};

// A beam search over several sentences at the same time.
class TranslationSearch {
 public:
  TranslationSearch(TranslationDecoder& decoder, const Tensor& source, const Tensor& lengths,
                    const BeamSearchOptions& options)
      : decoder_(decoder), end_token_(decoder.model().end_token()), options_(options) {
    const TranslationModel& model = decoder.model();
    const int64_t limit = model.options().max_length;
    int64_t capacity = 1;
    for (int64_t i = 0; i < source.size(0); ++i) {
      const int64_t wanted =
          options.max_length > 0 ? options.max_length : lengths.data<int64_t>()[i] + kSourceSurplus;
      beams_.emplace_back(options, std::min(wanted, limit));
      active_.push_back(i);
      capacity = std::max(capacity, std::min(wanted, limit));
    }
    const NoGradScope no_grad;
    const Device device = model.predictor.weight.device();
    decoder.start(model.encode(source.to(device), lengths, {}), options.beam_size, capacity);
    tokens_ = Tensor::full({decoder_.row_count()}, static_cast<double>(end_token_), DType::int64);
  }

  bool is_done() const { return active_.empty(); }

  void step() {
    const std::vector<Continuation> best = find_continuations(decoder_.step(tokens_));
    std::vector<RowCopy> copies;
    const auto beam = options_.beam_size;
    for (size_t i = 0; i < active_.size(); ++i) {
      SentenceBeam& sentence = beams_[static_cast<size_t>(active_[i])];
      if (sentence.is_done()) continue;
      const auto first = best.begin() + static_cast<std::ptrdiff_t>(i * candidates_);
      std::vector<Continuation> own(first, first + static_cast<std::ptrdiff_t>(counts_[i]));
      const auto row = static_cast<int64_t>(i) * beam;
      sentence.extend(own, end_token_, row, copies);
      for (int64_t j = 0; j < beam && !sentence.is_done(); ++j) {
        const auto& tokens = sentence.live()[static_cast<size_t>(j)].tokens;
        if (!tokens.empty()) tokens_.data<int64_t>()[row + j] = tokens.back();
      }
    }
    decoder_.copy_rows(copies);
    compact();
  }

  std::vector<std::vector<TranslationHypothesis>> take_results() {
    std::vector<std::vector<TranslationHypothesis>> results;
    for (SentenceBeam& beam : beams_) results.push_back(beam.take_results());
    return results;
  }

 private:
  // Returns the best continuations of each active sentence, sorted, with rows counted from the first row of
  // the sentence. Those of sentence i begin at i * candidates_, and there are counts_[i].
  std::vector<Continuation> find_continuations(const Tensor& device_logits) {
    const Tensor log_sums = logsumexp(device_logits).to(kCpu).to(DType::float64),
                 logits = device_logits.to(kCpu);
    const int64_t vocabulary = logits.size(1), beam = options_.beam_size;
    candidates_ = std::min(beams_.front().count_candidates(), static_cast<size_t>(beam * vocabulary));
    counts_.assign(active_.size(), 0);
    std::vector<Continuation> all(active_.size() * candidates_);
    const auto search = [&](int64_t first, int64_t last) {
      std::vector<Continuation> own, row_best;
      for (int64_t i = first; i < last; ++i) {
        const SentenceBeam& sentence = beams_[static_cast<size_t>(active_[static_cast<size_t>(i)])];
        if (sentence.is_done()) continue;
        own.clear();
        for (size_t j = 0; j < sentence.live().size(); ++j) {
          const double log_probability = sentence.live()[j].log_probability;
          if (!std::isfinite(log_probability)) continue;
          const int64_t row = i * beam + static_cast<int64_t>(j);
          const double log_sum = log_sums.data<double>()[row];
          if (!std::isfinite(log_sum)) throw DivergenceError("the logits of a translation are not finite");
          const auto find = [&](const auto* data) {
            find_best_tokens(data + row * vocabulary, vocabulary, log_sum, static_cast<int64_t>(j),
                             log_probability, candidates_, row_best);
          };
          logits.dtype() == DType::float64 ? find(logits.data<double>()) : find(logits.data<float>());
          own.insert(own.end(), row_best.begin(), row_best.end());
        }
        std::sort(own.begin(), own.end());
        own.resize(std::min(own.size(), candidates_));
        counts_[static_cast<size_t>(i)] = own.size();
        std::copy(own.begin(), own.end(),
                  all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(i) * candidates_));
      }
    };
    parallel_for(static_cast<int64_t>(active_.size()), 1, search);
    return all;
  }

  // Drops the rows of finished sentences if there are many of them.
  void compact() {
    std::vector<int64_t> kept, remaining;
    for (size_t i = 0; i < active_.size(); ++i)
      if (!beams_[static_cast<size_t>(active_[i])].is_done()) {
        kept.push_back(static_cast<int64_t>(i));
        remaining.push_back(active_[i]);
      }
    if (kept.empty()) active_.clear();
    if (kept.empty() ||
        static_cast<double>(kept.size()) > kCompactionShare * static_cast<double>(active_.size()))
      return;
    decoder_.select_sources(kept);
    const Tensor tokens = Tensor::empty({decoder_.row_count()}, DType::int64);
    for (size_t i = 0; i < kept.size(); ++i)
      std::copy_n(tokens_.data<int64_t>() + kept[i] * options_.beam_size, options_.beam_size,
                  tokens.data<int64_t>() + static_cast<int64_t>(i) * options_.beam_size);
    tokens_ = tokens;
    active_ = remaining;
  }

  TranslationDecoder& decoder_;
  int64_t end_token_;
  BeamSearchOptions options_;
  std::vector<SentenceBeam> beams_;
  std::vector<int64_t> active_;  // the sentences in the rows of the decoder
  Tensor tokens_;                // (rows,) newest tokens
  size_t candidates_ = 0;
  std::vector<size_t> counts_;
};

}  // namespace

double compute_length_penalty(int64_t tokens, double alpha) {
  return std::pow((5 + static_cast<double>(tokens)) / 6, alpha);
}

std::vector<std::vector<TranslationHypothesis>> translate(TranslationDecoder& decoder, const Tensor& source,
                                                          const Tensor& lengths,
                                                          const BeamSearchOptions& options) {
  check(options.beam_size >= 1 && options.hypotheses >= 1 && options.hypotheses <= options.beam_size,
        "translate", "a beam of ", options.beam_size, " has no ", options.hypotheses, " hypotheses");
  check(std::isfinite(options.length_penalty) && options.max_length >= 0, "translate", "a length penalty of ",
        options.length_penalty, " and at most ", options.max_length, " tokens");
  check(source.rank() == 2 && lengths.shape() == Shape{source.size(0)}, "translate", "source ",
        source.shape(), " and lengths ", lengths.shape(), " do not match");
  if (source.size(0) == 0) return {};
  TranslationSearch search(decoder, source, lengths, options);
  while (!search.is_done()) search.step();
  return search.take_results();
}

}  // namespace tapeformer
