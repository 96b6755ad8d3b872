#include "data/sets/catalogue.h"

#include <doctest/doctest.h>

#include <set>

#include "core/base/errors.h"
#include "data/sets/directory.h"
#include "data/speech/verify.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("every row of the table of data sets is complete") {
  std::set<std::string_view> names;
  for (const CatalogueEntry& set : list_catalogue_entries()) {
    CAPTURE(set.name);
    CHECK(names.insert(set.name).second);
    const bool images = set.type == DatasetType::images, speech = set.type == DatasetType::speech;
    CHECK((set.height > 0 && set.width > 0 && (set.channels == 1 || set.channels == 3)) == images);
    const bool published = images || set.type == DatasetType::text;
    const bool pairs = set.type == DatasetType::translation;
    const bool fetched_pairs = set.name == "wmt14-en-de";  // made of several archives
    CHECK(set.has_checksums() == (published || (pairs && !fetched_pairs)));
    CHECK(set.url.empty() == !(published || fetched_pairs));
    CHECK(set.languages[0].empty() == !pairs);
    CHECK((set.sample_rate == 0 || speech));
    CHECK((!set.has_part_folders() || speech));
    CHECK(set.has_part_folders() == !set.valid_part.empty());
    CHECK(set.has_part_folders() == !set.test_part.empty());
    CHECK(set.title.empty() == set.files.empty());
    for (const CatalogueFile& file : set.files) CHECK(file.sha256.size() == (set.has_checksums() ? 64 : 0));
  }
}

TEST_CASE("known_set() returns the row of a name, and set_names() the names of the selected rows") {
  const auto speech = [](const CatalogueEntry& set) { return set.type == DatasetType::speech; };
  CHECK(list_dataset_names().size() == list_catalogue_entries().size());
  CHECK(list_dataset_names([](const CatalogueEntry& set) { return set.type == DatasetType::images; }) ==
        std::vector<std::string>{"mnist", "fashion-mnist", "cifar10"});
  CHECK(require_catalogue_entry("timit", speech).format == CorpusFormat::timit);
  CHECK(find_catalogue_entry("timmit") == nullptr);
  CHECK(message_of<ConfigError>([&] {
          require_catalogue_entry("mnist", speech, "a corpus of speech");
        }).starts_with("\"mnist\" is not a corpus of speech"));
}

TEST_CASE("every data set of speech and every lexicon has a check of its contents") {
  const TempDir dir;
  const auto layouts = list_speech_layouts();
  for (const CatalogueEntry& set : list_catalogue_entries()) {
    if (set.type != DatasetType::speech && set.type != DatasetType::lexicon) continue;
    CAPTURE(set.name);
    const std::string name(set.name);
    CHECK(std::count(layouts.begin(), layouts.end(), name) == 1);
    // find_speech_faults() reports an empty folder, and throws for a data set that it cannot check.
    CHECK(!find_speech_faults(name, dir.path()).empty());
  }
}

TEST_CASE("a data set that is not found names its folder and its origin") {
  const TempDir dir;
  for (const CatalogueEntry& set : list_catalogue_entries()) {
    if (!set.system_folder.empty()) continue;
    CAPTURE(set.name);
    const std::string text =
        message_of<MissingDatasetError>([&] { require_dataset_folder(set, dir.path().string()); });
    CHECK(contains(text, (dir / std::string(set.name)).string()));
    CHECK(contains(text, std::string(set.download_instructions)));
  }
}
