// Transcripts as people have them: tables with a column for the recording and a column for the text, lists of
// "id text" lines, or a file beside every recording. Reads files only; any thread.
//
// Errors: DataError names the file and the line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/lexicon.h"

namespace tapeformer {

struct Transcript {
  std::string recording;  // id, file name or path, as it is written
  std::string text;
  std::string speaker;  // "": not given
  std::string place;    // "file:line"
};

// Columns of a table, by the name in its header or by number, from 1; "": found by usual names ("path",
// "file", "id" …; "text", "sentence", "transcript" …; "speaker", "client_id").
struct TranscriptColumns {
  std::string recording, text, speaker;
};

// Reads
// - a table: .tsv, .csv (commas with quotes), or text whose first line has tabs or bars. Without a header it
// has
//   two columns, recording and text, or as LJSpeech three: recording, text, normalised text;
// - any other file: lines "id text", as Kaldi's text and LibriSpeech's .trans.txt;
// - a folder: all .trans.txt files below it; without these, every .txt or .lab file is the text of the
// recording
//   of its name.
// With a list of faults, wrong lines are added to it and left out.
std::vector<Transcript> read_transcripts(const std::filesystem::path& path,
                                         const TranscriptColumns& columns = {}, Faults* faults = nullptr);

struct NormalizedText {
  Words words;    // in lower case, as the lexicon looks them up
  Words unknown;  // those that the lexicon lacks
};

// Splits a text into words of the lexicon: without regard to case, without punctuation around words,
// typographic marks as ASCII, and compounds ("well-known") in parts if the lexicon has no whole. Digits and
// symbols such as % are words: how they are spoken only a person can say.
NormalizedText normalize_transcript(const std::string& text, const Lexicon& lexicon);

}  // namespace tapeformer
