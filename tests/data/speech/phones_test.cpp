#include "data/speech/phones/phones.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "data/speech/phones/lexicon.h"
#include "tests/data/stand_ins.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("the 61 phones of TIMIT are mapped to 48 and 39") {
  CHECK(list_timit_phones(PhoneSet::timit61).size() == 61);
  CHECK(list_timit_phones(PhoneSet::timit48).size() == 48);
  CHECK(list_timit_phones(PhoneSet::timit39).size() == 39);
  const Words spoken = {"h#", "ax-h", "q",  "axr", "em", "eng", "nx",
                        "ux", "hv",   "ao", "ix",  "zh", "kcl", "epi"};
  CHECK(map_timit_phone(spoken, PhoneSet::timit39) ==
        Words{"sil", "ah", "er", "m", "ng", "n", "uw", "hh", "aa", "ih", "sh", "sil", "sil"});
  // Mapping to 39 phones directly and through the 48 phones of training gives the same result.
  for (const std::string& phone : list_timit_phones(PhoneSet::timit61))
    CHECK(map_timit_phone(map_timit_phone(Words{phone}, PhoneSet::timit48), PhoneSet::timit39) ==
          map_timit_phone(Words{phone}, PhoneSet::timit39));
  CHECK(contains(message_of<DataError>([] { map_timit_phone("xx", PhoneSet::timit39); }),
                 "\"xx\" is not a phone of TIMIT"));
}

TEST_CASE("a table numbers phones from 1, after the blank") {
  const PhoneTable table = make_phone_table({{"b", "a"}, {"c", "b"}});
  CHECK(table.class_count() == 4);
  CHECK(table.get_class_indices({"a", "c", "b"}) == std::vector<int64_t>{1, 3, 2});
  CHECK(table.phones({3, 1}) == Words{"c", "a"});
  CHECK(message_of<DataError>([&] { table.get_class_index("d"); }) == "\"d\" is not one of the 3 phones");
  CHECK(contains(message_of<DataError>([&] { table.phones({4}); }), "4 is not the number of a phone"));
  CHECK(contains(message_of<DataError>([] { PhoneTable({"a", "a"}); }), "listed twice"));
  CHECK(contains(message_of<DataError>([] { PhoneTable({"<blank>"}); }), "reserved for the CTC blank"));
}

TEST_CASE("a lexicon removes stress and comments and uses the first pronunciation") {
  const TempDir dir;
  write_file(dir / "dict",
             std::string(";;; a comment\nread R EH1 D\nRead(2) R IY1 D # present tense\nA AH0\n"));
  const Lexicon lexicon = Lexicon::read(dir / "dict");
  CHECK(lexicon.size() == 2);
  std::set<std::string> unknown;
  CHECK(lexicon.look_up_phones({"READ", "zork", "a", "quux", "zork"}, unknown) ==
        Words{"R", "EH", "D", "AH"});
  CHECK(unknown == std::set<std::string>{"quux", "zork"});
  write_file(dir / "dict", std::string("a AH0\nb\n"));
  CHECK(contains(message_of<DataError>([&] { Lexicon::read(dir / "dict"); }), "dict:2: \"b\" has no phones"));
  write_file(dir / "dict", std::string("a AH0 <blank>\n"));
  CHECK(contains(message_of<DataError>([&] { Lexicon::read(dir / "dict"); }),
                 "dict:1: \"<blank>\" is reserved for the CTC blank"));
}

namespace {

void check_cmudict(const std::filesystem::path& folder) {
  const Lexicon lexicon = Lexicon::read(folder / "cmudict.dict");
  CHECK(lexicon.size() > 120000);
  CHECK(lexicon.phones().size() == 39);
  std::set<std::string> unknown;
  CHECK(lexicon.look_up_phones({"seven", "aalborg"}, unknown) ==
        Words{"S", "EH", "V", "AH", "N", "AO", "L", "B", "AO", "R", "G"});
  CHECK(unknown.empty());
}

}  // namespace

TEST_CASE("a generated lexicon as large as CMUdict has 39 phones") {
  const TempDir dir;
  write_stand_in_cmudict(dir.path());
  check_cmudict(dir.path());
}

TEST_CASE("CMUdict has 39 phones") {
  if (!have_real("cmudict")) {
    MESSAGE("skipped: no cmudict in $TAPEFORMER_DATA");
    return;
  }
  check_cmudict(real_set("cmudict"));
}
