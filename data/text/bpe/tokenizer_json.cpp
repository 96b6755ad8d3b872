#include "data/text/bpe/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "data/text/bpe/split_pattern.h"

namespace tapeformer {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 16;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
// Maximum number of tokens that have no piece, which limits the memory that a large token can use.
constexpr int64_t kMaxUnusedTokens = 1 << 16;

// An entry of the file, with the names of the entries around it for error messages.
class Entry {
 public:
  Entry(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  const Json& json() const { return json_; }
  const std::string& path() const { return path_; }
  [[noreturn]] void fail(const std::string& expected) const {
    constexpr size_t kMaxShown = 80;
    std::string found = json_.is_object()  ? "an object"
                        : json_.is_array() ? concat_text("a list of ", json_.size())
                                           : json_.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (found.size() > kMaxShown) found = found.substr(0, kMaxShown) + "…";
    throw DataError(path_ + ": expected " + expected + ", got " + found);
  }
  void require(bool condition, const std::string& expected) const {
    if (!condition) fail(expected);
  }

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  Entry at(const char* key) const {
    require(json_.is_object(), "an object");
    if (!json_.contains(key)) throw DataError(path_ + ": the entry \"" + key + "\" is missing");
    return {json_.at(key), path_ + "." + key};
  }
  Entry at(size_t i) const { return {json_.at(i), concat_text(path_, "[", i, "]")}; }
  // Returns the number of elements of a list.
  size_t size() const {
    require(json_.is_array(), "a list");
    return json_.size();
  }
  const std::string& text() const {
    require(json_.is_string(), "a string");
    return json_.get_ref<const std::string&>();
  }
  int32_t token() const {
    const bool fits = json_.is_number_unsigned() && json_.get<uint64_t>() < uint64_t{kMaxVocabulary};
    require(fits, concat_text("an integer from 0 to ", kMaxVocabulary - 1));
    return static_cast<int32_t>(json_.get<int64_t>());
  }
  bool flag(const char* key) const {
    if (!has(key)) return false;
    require(json_.at(key).is_boolean(), concat_text("true or false as \"", key, "\""));
    return json_.at(key).get<bool>();
  }
  std::string type() const { return has("type") ? at("type").text() : ""; }
  // Throws DataError unless all keys of the object are in `known`.
  void require_keys(const std::set<std::string>& known) const {
    require(json_.is_object(), "an object");
    for (const auto& item : json_.items())
      if (!known.contains(item.key()))
        throw DataError(path_ + ": unknown entry " + quote_bpe_text(item.key()));
  }

 private:
  const Json& json_;
  std::string path_;
};

// Returns the entry `key` as a list: the elements of `list_key` if it is of the type "Sequence", the entry
// itself if it is not null, and otherwise nothing.
std::vector<Entry> list_parts(const Entry& root, const char* key, const char* list_key) {
  std::vector<Entry> parts;
  if (!root.has(key)) return parts;
  const Entry entry = root.at(key);
  entry.require(entry.json().is_object(), "an object");
  if (entry.type() != "Sequence") return {entry};
  const Entry list = entry.at(list_key);
  for (size_t i = 0; i < list.size(); ++i) parts.push_back(list.at(i));
  return parts;
}

void read_pieces(const Entry& root, BpeModel& model) {
  const Entry vocabulary = root.at("model").at("vocab");
  vocabulary.require(vocabulary.json().is_object(), "an object");
  std::vector<std::pair<std::string, int32_t>> pieces;
  int64_t size = 0, used = static_cast<int64_t>(vocabulary.json().size());
  for (const auto& item : vocabulary.json().items()) {
    const Entry entry(item.value(), vocabulary.path() + "[" + quote_bpe_text(item.key()) + "]");
    pieces.emplace_back(item.key(), entry.token());
    size = std::max<int64_t>(size, pieces.back().second + 1);
  }
  if (root.has("added_tokens")) {
    const Entry list = root.at("added_tokens");
    used += static_cast<int64_t>(list.size());
    for (size_t i = 0; i < list.size(); ++i) size = std::max<int64_t>(size, list.at(i).at("id").token() + 1);
  }
  if (size > used + kMaxUnusedTokens)
    throw DataError(concat_text(vocabulary.path(), ": the largest token is ", size - 1, ", and only ", used,
                                " tokens are in use"));
  model.pieces.resize(static_cast<size_t>(size));
  for (const auto& [piece, token] : pieces) {
    std::string& own = model.pieces[static_cast<size_t>(token)];
    if (!own.empty())
      throw DataError(concat_text(vocabulary.path(), ": the token ", token, " has two pieces, ",
                                  quote_bpe_text(own), " and ", quote_bpe_text(piece)));
    own = piece;
  }
}

void read_merges(const Entry& root, BpeModel& model) {
  const Entry list = root.at("model").at("merges");
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Entry merge = list.at(i);
    if (!merge.json().is_array()) {
      pairs.push_back(parse_bpe_merge(merge.text(), merge.path()));
      continue;
    }
    merge.require(merge.size() == 2, "two pieces");
    pairs.emplace_back(merge.at(size_t{0}).text(), merge.at(size_t{1}).text());
  }
  set_bpe_merges(model, pairs, list.path());
}

void read_added_tokens(const Entry& root, BpeModel& model) {
  if (!root.has("added_tokens")) return;
  const Entry list = root.at("added_tokens");
  auto tokens = index_bpe_pieces(model);
  auto next = static_cast<int32_t>(tokens.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Entry added = list.at(i);
    added.require_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (added.flag(key))
        throw DataError(added.path() + ": the added token " + quote_bpe_text(added.at("content").text()) +
                        " has " + key + " = true, which is not supported");
    model.added_tokens.push_back({.id = added.at("id").token(),
                                  .text = added.at("content").text(),
                                  .is_special = added.flag("special"),
                                  .is_normalized = added.flag("normalized")});
    // The package tokenizers gives a text that is no piece the next number, whatever the file says.
    const auto [token, is_new] = tokens.emplace(added.at("content").text(), next);
    const int32_t id = model.added_tokens.back().id;
    if (id != token->second || (is_new && !model.pieces[static_cast<size_t>(id)].empty()))
      added.at("id").fail(concat_text(token->second, ", the number of ", quote_bpe_text(token->first)));
    next = std::max(next, id + 1);
  }
}

void read_model(const Entry& root, BpeModel& model) {
  const Entry entry = root.at("model");
  entry.require_keys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                      "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  const std::string type = entry.type();
  if (!type.empty() && type != "BPE")
    throw DataError(entry.path() + ".type: expected \"BPE\", got " + quote_bpe_text(type));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (entry.has(key)) entry.at(key).require(entry.at(key).text().empty(), "null or an empty string");
  for (const char* key : {"byte_fallback", "fuse_unk"})
    if (entry.flag(key)) entry.at(key).fail("false");
  if (entry.has("dropout")) entry.at("dropout").require(entry.at("dropout").json() == 0, "null");
  model.ignores_merges = entry.flag("ignore_merges");
  read_pieces(root, model);
  read_merges(root, model);
  if (!entry.has("unk_token") || entry.at("unk_token").text().empty()) return;
  const auto tokens = index_bpe_pieces(model);
  const auto unknown = tokens.find(entry.at("unk_token").text());
  if (unknown == tokens.end()) entry.at("unk_token").fail("a piece of the vocabulary");
  model.unknown_token = unknown->second;
}

// Reads the entry "single" of a post-processor of the type TemplateProcessing, a list of tokens before the
// text "A".
void read_template(const Entry& entry, BpeModel& model) {
  const Entry list = entry.at("single");
  list.require(list.size() > 0, "a list with the text \"A\"");
  for (size_t i = 0; i < list.size(); ++i) {
    const Entry part = list.at(i);
    part.require(part.json().is_object(), "an object");
    const bool is_last = i + 1 == list.size();
    part.require(part.has(is_last ? "Sequence" : "SpecialToken"), "special tokens, and then one text");
    if (is_last) {
      const Entry text = part.at("Sequence").at("id");
      text.require(text.json() == "A", "\"A\"");
      continue;
    }
    const std::string& name = part.at("SpecialToken").at("id").text();
    const Entry ids = entry.at("special_tokens").at(name.c_str()).at("ids");
    for (size_t k = 0; k < ids.size(); ++k) model.start_tokens.push_back(ids.at(k).token());
  }
}

// Reads the parts before and after the model.
void read_processing(const Entry& root, BpeModel& model) {
  for (const Entry& part : list_parts(root, "normalizer", "normalizers")) {
    if (part.type() != "NFC")
      throw DataError(part.path() + ": expected the normaliser NFC or none, got " +
                      quote_bpe_text(part.type()));
    model.normalizes_to_nfc = true;
  }
  model.split = read_bpe_split(root.at("pre_tokenizer").json(), root.path());
  bool has_template = false;
  for (const Entry& part : list_parts(root, "post_processor", "processors")) {
    if (part.type() == "TemplateProcessing" && !std::exchange(has_template, true))
      read_template(part, model);
    else if (part.type() != "ByteLevel")
      throw DataError(part.path() + ": expected ByteLevel or one TemplateProcessing, got " +
                      quote_bpe_text(part.type()));
  }
  for (const Entry& part : list_parts(root, "decoder", "decoders"))
    if (part.type() != "ByteLevel")
      throw DataError(part.path() + ": expected ByteLevel, got " + quote_bpe_text(part.type()));
}

// Reads the entry of write_tokenizer_json(). Without it, the stop tokens are those with known names.
void read_own_entry(const Entry& root, BpeModel& model) {
  if (!root.has("tapeformer")) {
    model.stop_tokens = find_bpe_stop_tokens(model.added_tokens);
    return;
  }
  const Entry own = root.at("tapeformer");
  own.require_keys({"stop_tokens", "vocabulary"});
  const Entry stop = own.at("stop_tokens");
  for (size_t i = 0; i < stop.size(); ++i) model.stop_tokens.push_back(stop.at(i).token());
  const auto size = static_cast<size_t>(own.at("vocabulary").token());
  own.at("vocabulary")
      .require(size >= model.pieces.size() && size <= model.pieces.size() + kMaxUnusedTokens,
               concat_text("at least ", model.pieces.size()));
  model.pieces.resize(size);
}

Json parse(const std::string& text, const std::string& source) {
  if (text.size() > kMaxTokenizerJsonBytes)
    throw DataError(
        concat_text(source, ": has ", text.size(), " bytes, expected at most ", kMaxTokenizerJsonBytes));
  const auto check_depth = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kMaxDepth) throw DataError(concat_text(source, ": is nested deeper than ", kMaxDepth));
    return true;
  };
  try {
    return Json::parse(text, check_depth);
  } catch (const Json::parse_error& error) {
    throw DataError(concat_text(source, ": is not valid JSON at byte ", error.byte));
  } catch (const Json::exception&) {
    throw DataError(source + ": contains a number that is too large");
  }
}

Json write_post_processor(const BpeModel& model) {
  if (model.start_tokens.empty())
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  for (const int32_t token : model.start_tokens) {
    const auto added = std::find_if(model.added_tokens.begin(), model.added_tokens.end(),
                                    [&](const BpeAddedToken& known) { return known.id == token; });
    const std::string name =
        added == model.added_tokens.end() ? model.pieces[static_cast<size_t>(token)] : added->text;
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", Json::array({token})}, {"tokens", Json::array({name})}};
  }
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

}  // namespace

BpeModel parse_tokenizer_json(const std::string& text, const std::string& source) {
  const Json json = parse(text, source);
  const Entry root(json, source);
  root.require_keys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                     "post_processor", "decoder", "model", "tapeformer"});
  BpeModel model;
  read_processing(root, model);
  read_model(root, model);
  read_added_tokens(root, model);
  read_own_entry(root, model);
  check_bpe_model(model, source);
  return model;
}

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(const std::string& json, const std::string& source,
                                                    UnknownCharacters unknown) {
  return make_bpe_tokenizer(parse_tokenizer_json(json, source), source, unknown);
}

std::string write_tokenizer_json(const BpeModel& model, bool has_own_entry) {
  Json vocabulary = Json::object(), merges = Json::array(), added_tokens = Json::array();
  for (size_t token = 0; token < model.pieces.size(); ++token)
    if (!model.pieces[token].empty()) vocabulary[model.pieces[token]] = token;
  const auto piece = [&](int32_t token) { return model.pieces[static_cast<size_t>(token)]; };
  for (const auto& [left, right, result] : model.merges)
    merges.push_back(Json::array({piece(left), piece(right)}));
  for (const BpeAddedToken& added : model.added_tokens)
    added_tokens.push_back({{"id", added.id},
                            {"content", added.text},
                            {"single_word", false},
                            {"lstrip", false},
                            {"rstrip", false},
                            {"normalized", added.is_normalized},
                            {"special", added.is_special}});
  const Json unknown = model.unknown_token < 0 ? Json() : Json(piece(model.unknown_token));
  Json json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens},
      {"normalizer", model.normalizes_to_nfc ? Json{{"type", "NFC"}} : Json()},
      {"pre_tokenizer", write_bpe_split(model.split)},
      {"post_processor", write_post_processor(model)},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}}};
  if (has_own_entry)
    json["tapeformer"] = {{"stop_tokens", model.stop_tokens}, {"vocabulary", model.pieces.size()}};
  json["model"] = {{"type", "BPE"},          {"dropout", nullptr},
                   {"unk_token", unknown},   {"continuing_subword_prefix", nullptr},
                   {"fuse_unk", false},      {"end_of_word_suffix", nullptr},
                   {"byte_fallback", false}, {"ignore_merges", model.ignores_merges}};
  json["model"]["vocab"] = std::move(vocabulary);
  json["model"]["merges"] = std::move(merges);
  return json.dump();
}

}  // namespace tapeformer
