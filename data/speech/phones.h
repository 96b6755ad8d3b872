// Phones, the labels of speech: tables of their names, and TIMIT's folding of 61 phones to 48 for training
// and 39 for scoring (Lee and Hon 1989, "Speaker-independent phone recognition using hidden Markov models").
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

using Words = std::vector<std::string>;

// Names and their numbers. Number 0 is the blank of CTC, which no text holds; phones follow in the order
// given.
class PhoneTable {
 public:
  PhoneTable() = default;
  // Throws DataError if a name is empty, contains a space, is "<blank>", is not UTF-8 or is repeated.
  explicit PhoneTable(const Words& phones);

  static constexpr int64_t kBlank = 0;
  int64_t classes() const { return static_cast<int64_t>(names_.size()); }  // with the blank
  const Words& names() const { return names_; }  // by number; the first is "<blank>"
  bool contains(const std::string& phone) const { return numbers_.contains(phone); }
  // Throws DataError for a phone that is not in the table.
  int64_t number(const std::string& phone) const;
  std::vector<int64_t> numbers(const Words& phones) const;
  // Throws DataError for a number outside of the table.
  Words phones(const std::vector<int64_t>& numbers) const;

 private:
  Words names_ = {"<blank>"};
  std::map<std::string, int64_t> numbers_;
};

// Every phone that occurs in the sequences, sorted.
PhoneTable table_of(const std::vector<Words>& sequences);

// One phone per line; lines "phone number", as of Kaldi's phones.txt, must be in order from <eps> or <blank>
// 0.
PhoneTable read_phones(const std::filesystem::path& path);

enum class PhoneSet { timit61, timit48, timit39 };

// The phones of a set, sorted; 61 of TIMIT with q and h#.
Words timit_phones(PhoneSet set);

// A phone of TIMIT's 61 (or of 48) in another set; "" for q, which is deleted. Throws DataError for a name
// that is no phone of TIMIT.
std::string fold_timit(const std::string& phone, PhoneSet set);
Words fold_timit(const Words& phones, PhoneSet set);

}  // namespace tapeformer
