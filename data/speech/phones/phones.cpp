#include "data/speech/phones/phones.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

// One of the 61 phones of TIMIT, and the phones to which it is mapped in the sets of 48 and 39 phones.
struct Folding {
  std::string_view phone, to48, to39;
};

constexpr Folding kTimit[] = {
    {"aa", "aa", "aa"},    {"ae", "ae", "ae"},    {"ah", "ah", "ah"},    {"ao", "ao", "aa"},
    {"aw", "aw", "aw"},    {"ax", "ax", "ah"},    {"ax-h", "ax", "ah"},  {"axr", "er", "er"},
    {"ay", "ay", "ay"},    {"b", "b", "b"},       {"bcl", "vcl", "sil"}, {"ch", "ch", "ch"},
    {"d", "d", "d"},       {"dcl", "vcl", "sil"}, {"dh", "dh", "dh"},    {"dx", "dx", "dx"},
    {"eh", "eh", "eh"},    {"el", "el", "l"},     {"em", "m", "m"},      {"en", "en", "n"},
    {"eng", "ng", "ng"},   {"epi", "epi", "sil"}, {"er", "er", "er"},    {"ey", "ey", "ey"},
    {"f", "f", "f"},       {"g", "g", "g"},       {"gcl", "vcl", "sil"}, {"h#", "sil", "sil"},
    {"hh", "hh", "hh"},    {"hv", "hh", "hh"},    {"ih", "ih", "ih"},    {"ix", "ix", "ih"},
    {"iy", "iy", "iy"},    {"jh", "jh", "jh"},    {"k", "k", "k"},       {"kcl", "cl", "sil"},
    {"l", "l", "l"},       {"m", "m", "m"},       {"n", "n", "n"},       {"ng", "ng", "ng"},
    {"nx", "n", "n"},      {"ow", "ow", "ow"},    {"oy", "oy", "oy"},    {"p", "p", "p"},
    {"pau", "sil", "sil"}, {"pcl", "cl", "sil"},  {"q", "", ""},         {"r", "r", "r"},
    {"s", "s", "s"},       {"sh", "sh", "sh"},    {"t", "t", "t"},       {"tcl", "cl", "sil"},
    {"th", "th", "th"},    {"uh", "uh", "uh"},    {"uw", "uw", "uw"},    {"ux", "uw", "uw"},
    {"v", "v", "v"},       {"w", "w", "w"},       {"y", "y", "y"},       {"z", "z", "z"},
    {"zh", "zh", "sh"},
};

std::string_view name_in(const Folding& row, PhoneSet set) {
  return set == PhoneSet::timit61 ? row.phone : set == PhoneSet::timit48 ? row.to48 : row.to39;
}

}  // namespace

PhoneTable::PhoneTable(const Words& phones) {
  for (const std::string& phone : phones) {
    require_utf8(phone, "phone \"" + phone + "\"");
    if (phone == kBlankName) throw DataError(kBlankNameFault);
    if (phone.empty() || phone.find_first_of(" \t\r\n") != std::string::npos)
      throw DataError("\"" + phone + "\" is not a valid name of a phone");
    if (!class_indices_.emplace(phone, class_count()).second)
      throw DataError("phone \"" + phone + "\" is listed twice");
    names_.push_back(phone);
  }
}

int64_t PhoneTable::get_class_index(const std::string& phone) const {
  const auto found = class_indices_.find(phone);
  if (found == class_indices_.end())
    throw DataError(concat_text("\"", phone, "\" is not one of the ", class_count() - 1, " phones"));
  return found->second;
}

std::vector<int64_t> PhoneTable::get_class_indices(const Words& phones) const {
  std::vector<int64_t> result;
  for (const std::string& phone : phones) result.push_back(get_class_index(phone));
  return result;
}

Words PhoneTable::phones(const std::vector<int64_t>& numbers) const {
  Words result;
  for (const int64_t number : numbers) {
    if (number < 0 || number >= class_count())
      throw DataError(
          concat_text(number, " is not the number of a phone, expected a number below ", class_count()));
    result.push_back(names_[static_cast<size_t>(number)]);
  }
  return result;
}

PhoneTable make_phone_table(const std::vector<Words>& sequences) {
  std::set<std::string> phones;
  for (const Words& sequence : sequences) phones.insert(sequence.begin(), sequence.end());
  return PhoneTable({phones.begin(), phones.end()});
}

Words list_timit_phones(PhoneSet set) {
  std::set<std::string> phones;
  for (const Folding& row : kTimit)
    if (!name_in(row, set).empty()) phones.emplace(name_in(row, set));
  return {phones.begin(), phones.end()};
}

std::string map_timit_phone(const std::string& phone, PhoneSet set) {
  // The silences "cl", "vcl" and "sil" of the set of 48 phones have no rows in kTimit, because they are not
  // in the set of 61 phones.
  if (set != PhoneSet::timit61 && (phone == "cl" || phone == "vcl" || phone == "sil"))
    return set == PhoneSet::timit48 ? phone : "sil";
  for (const Folding& row : kTimit)
    if (row.phone == phone) return std::string(name_in(row, set));
  throw DataError("\"" + phone + "\" is not a phone of TIMIT");
}

Words map_timit_phone(const Words& phones, PhoneSet set) {
  Words result;
  for (const std::string& phone : phones)
    if (std::string folded = map_timit_phone(phone, set); !folded.empty())
      result.push_back(std::move(folded));
  return result;
}

}  // namespace tapeformer
