// Phone tables, which assign label numbers to phones, and the phone sets of TIMIT. The 61 phones of TIMIT are
// mapped to 48 phones for training and 39 phones for scoring, as in "Speaker-independent phone recognition
// using hidden Markov models" (Lee and Hon 1989).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/text_lines.h"

namespace tapeformer {

// A table that assigns a number to each phone. Number 0 is the blank of CTC. The phones have the numbers 1,
// 2, … in the order in which they are passed to the constructor.
class PhoneTable {
 public:
  PhoneTable() = default;
  // Throws DataError if a name is empty, contains white space, is "<blank>", is not UTF-8 or is repeated.
  explicit PhoneTable(const Words& phones);

  static constexpr int64_t kBlank = 0;
  static constexpr char kBlankName[] = "<blank>";
  // Error message for a phone with the name kBlankName.
  static constexpr char kBlankNameFault[] =
      "\"<blank>\" is reserved for the CTC blank and cannot be the name of a phone";
  int64_t class_count() const { return static_cast<int64_t>(names_.size()); }  // including the blank
  const Words& names() const { return names_; }  // indexed by number; the first is "<blank>"
  bool contains(const std::string& phone) const { return class_indices_.contains(phone); }
  // Returns the number of a phone. Throws DataError if the table does not contain the phone.
  int64_t get_class_index(const std::string& phone) const;
  std::vector<int64_t> get_class_indices(const Words& phones) const;
  // Returns the phones with these numbers. Throws DataError for a number outside of the table.
  Words phones(const std::vector<int64_t>& numbers) const;

 private:
  Words names_ = {kBlankName};
  std::map<std::string, int64_t> class_indices_;
};

// Returns a table of all phones in the sequences, sorted.
PhoneTable make_phone_table(const std::vector<Words>& sequences);

enum class PhoneSet { timit61, timit48, timit39 };

// Returns the phones of a set in sorted order.
Words list_timit_phones(PhoneSet set);

// Maps a phone of timit61 or timit48 to a phone of `set`. Only timit61 contains the glottal stop "q". In the
// sets timit48 and timit39, "q" is mapped to "". Throws DataError if `phone` is in neither timit61 nor
// timit48. Also throws DataError if `set` is timit61 and does not contain `phone`.
std::string map_timit_phone(const std::string& phone, PhoneSet set);
// Maps each phone of a sequence to a phone of `set`. Leaves out phones that are mapped to "".
Words map_timit_phone(const Words& phones, PhoneSet set);

}  // namespace tapeformer
