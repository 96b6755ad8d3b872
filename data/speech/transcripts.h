// Readers of transcripts. The transcripts are in a table with columns for the recording and the text, in a
// file with lines "id text", or in one text file per recording. All functions are thread-safe.
//
// Functions throw DataError for invalid transcripts. The message contains the file and the line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/speech/corpus.h"
#include "data/speech/lexicon.h"

namespace tapeformer {

struct Transcript {
  std::string recording;  // id, file name or path of the recording, as in the transcripts
  std::string text;
  std::string speaker;   // "" if it is unknown
  std::string location;  // "file:line"
};

// The columns of a table. Each column is given by its name in the header or by its number, from 1. If a
// member is empty, the column is found by common names ("path", "file", "id" …; "text", "sentence",
// "transcript" …; "speaker", "client_id").
struct TranscriptColumns {
  std::string recording, text, speaker;
};

// Reads transcripts. `path` is one of:
// - a table: .tsv, .csv (commas with quotes), or a file whose first line has tabs or bars. A table without a
//   header has two columns (recording, text) or three (recording, text, normalised text, as LJSpeech).
// - any other file: lines "id text", as Kaldi's text and LibriSpeech's .trans.txt.
// - a folder: all .trans.txt files below it. If there are none, every .txt or .lab file is the transcript of
//   the recording with the same name.
// If `faults` is not null, appends the faults of invalid lines to `faults` and leaves these lines out.
std::vector<Transcript> read_transcripts(const std::filesystem::path& path,
                                         const TranscriptColumns& columns = {}, Faults* faults = nullptr);

struct NormalizedText {
  Words words;    // in lower case
  Words unknown;  // words that the lexicon lacks
};

// Splits a text into words of the lexicon. Ignores case, removes punctuation around words, and converts
// typographic marks to ASCII. If the lexicon lacks a compound ("well-known"), splits the compound. Keeps
// digits and symbols such as % as words, because their pronunciation is ambiguous.
NormalizedText normalize_transcript(const std::string& text, const Lexicon& lexicon);

}  // namespace tapeformer
