// Evaluation of a translation model: its loss, and BLEU and chrF2 of its translations.
#pragma once

#include <string>
#include <vector>

#include "data/translation/corpus_scorer.h"
#include "data/translation/translation_dataset.h"
#include "train/distributed/communicator.h"
#include "train/signals.h"
#include "train/tasks/translation/translator.h"

namespace tapeformer {

struct TranslationEvaluation {
  int64_t cut_pair_count = 0;            // pairs whose tokens were cut; scores use the whole references
  int64_t token_count = 0;               // predicted tokens: those of the references and their end tokens
  int64_t unknown_count = 0;             // unknown tokens of the translations, whose text is U+FFFD
  double nats_per_token = 0;             // mean negative log-likelihood of the references
  std::vector<CorpusScore> scores = {};  // BLEU, BLEU in lower case, BLEU with the tokenizer "intl", chrF2
  double sentences_per_second = 0;       // of the search, in this process
};

// Scores the model on all pairs of a data set, without dropout. The processes divide the batches, and the
// result does not depend on their number. Throws DivergenceError if a loss is not finite, and StoppedError if
// `stop` returns true before a batch; each process calls `stop` the same number of times.
TranslationEvaluation evaluate(const TranslationModel& model, const TranslationDataset& dataset,
                               const TranslatorOptions& options, const StopCheck& stop,
                               Communicator& processes);

}  // namespace tapeformer
