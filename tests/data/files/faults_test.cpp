#include "data/files/faults.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/base/errors.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("shown_faults() shows the first faults of each kind and the number of further faults") {
  Faults faults;
  for (int i = 0; i < 100; ++i) {
    faults.push_back(
        concat_text("u", i, ": /x/u", i, ".wav: expected 16000 samples per second, found 22050"));
    if (i == 50) faults.push_back("list:7: an empty transcript");
  }
  const Faults shown = select_faults_to_show(faults, {.max_per_kind = 3, .max_total = 50});
  REQUIRE(shown.size() == 5);
  CHECK(shown[0] == faults[0]);
  CHECK(shown[2] == faults[2]);
  CHECK(shown[3] == "… and 97 more of this kind");
  CHECK(shown[4] == "list:7: an empty transcript");
  CHECK(classify_fault(faults[0]) == classify_fault(faults[99]));
  CHECK(classify_fault(faults[0]) != classify_fault("list:7: an empty transcript"));
  CHECK(select_faults_to_show({}).empty());
  CHECK(select_faults_to_show({"a", "b"}) == Faults{"a", "b"});
  CHECK(format_faults({"a", "b"}) == "a\nb");
}

TEST_CASE("the total number of shown faults is limited") {
  Faults faults;
  for (char a = 'a'; a <= 'z'; ++a)
    for (char b = 'a'; b <= 'z'; ++b) faults.push_back(std::string("fault ") + a + b);
  const Faults shown = select_faults_to_show(faults, {.max_per_kind = 3, .max_total = 20});
  REQUIRE(shown.size() == 21);
  CHECK(shown.back() == "… and 656 more");
}
