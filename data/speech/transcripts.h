// Readers of transcripts. The transcripts are in a table with columns for the recording and the text, in a
// file with lines "id text", or in one text file per recording. All functions are thread-safe.
//
// Functions throw DataError for invalid transcripts. The message contains the file and the line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/speech/corpus.h"
#include "data/speech/phones/lexicon.h"

namespace tapeformer {

struct Transcript {
  std::string recording;  // id, file name or path of the recording, as in the transcripts
  std::string text;
  std::string speaker;   // "" if it is unknown
  std::string location;  // "file:line"
};

// The columns of a table of transcripts. A column is specified by its name in the header or by its number,
// counted from 1. If a column is not specified (empty string), the column with a common name is used. Common
// names are "path", "file" and "id" for the recording, "text" and "sentence" for the text, and "speaker" and
// "client_id" for the speaker.
struct TranscriptColumns {
  std::string recording, text, speaker;
};

// Reads transcripts from a table, a list or a folder:
// - A table is a .tsv file, a .csv file, or a file whose first line contains a tab or a bar. Fields may be
//   quoted and may contain line breaks then. A table without a header contains the columns recording and
//   text, or, as in LJSpeech, the columns recording, text and normalised text. If a table without a header
//   has a column of normalised text, the normalised text is used.
// - Any other file is a list with lines "id text", such as the file `text` of Kaldi or a .trans.txt file of
//   LibriSpeech.
// - If `path` is a folder, all .trans.txt files in the folder and its subfolders are read as lists. If there
//   are no such files, every .txt or .lab file contains the transcript of the recording with the same name.
// If `faults` is not null, appends the faults of invalid lines to `faults` and leaves these lines out. If no
// transcripts are left, throws DataError with these faults.
std::vector<Transcript> read_transcripts(const std::filesystem::path& path,
                                         const TranscriptColumns& columns = {}, Faults* faults = nullptr);

struct NormalizedText {
  Words words;    // in lower case
  Words unknown;  // words that the lexicon lacks
};

// Splits a text into words in lower case. Removes punctuation around words, and replaces typographic marks by
// ASCII characters. Splits a compound such as "well-known" if the lexicon lacks the compound. Does not spell
// out digits and symbols such as %, because the pronunciation of such characters is ambiguous.
NormalizedText normalize_transcript(const std::string& text, const Lexicon& lexicon);

}  // namespace tapeformer
