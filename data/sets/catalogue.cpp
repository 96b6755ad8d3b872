#include "data/sets/catalogue.h"

#include <algorithm>
#include <array>

#include "core/base/errors.h"
#include "core/options/options.h"

namespace tapeformer {
namespace {

constexpr std::array<CatalogueFile, 4> kMnistFiles{{
    {"train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
    {"train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
    {"t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
    {"t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
}};

constexpr std::array<CatalogueFile, 4> kFashionMnistFiles{{
    {"train-images-idx3-ubyte", 47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
    {"train-labels-idx1-ubyte", 60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
    {"t10k-images-idx3-ubyte", 7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
    {"t10k-labels-idx1-ubyte", 10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"},
}};

constexpr std::array<CatalogueFile, 6> kCifar10Files{{
    {"data_batch_1.bin", 30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
    {"data_batch_2.bin", 30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
    {"data_batch_3.bin", 30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
    {"data_batch_4.bin", 30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
    {"data_batch_5.bin", 30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
    {"test_batch.bin", 30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
}};

constexpr std::array<CatalogueFile, 1> kEnwik8Files{{
    {"enwik8", 100000000, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"},
}};

constexpr std::array<CatalogueFile, 1> kText8Files{{
    {"text8", 100000000, "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"},
}};

constexpr std::array<CatalogueFile, 6> kTatoebaFiles{{
    {"train.en", 5425625, "7e836e8d63896c97f3840021e38ffe6153abad87db5b4ead5b480f789d86872c"},
    {"train.de", 6397691, "ea094d14e57eb20273d77e748abb0f5b1d66fd904253c2458a0d1266ec71701b"},
    {"valid.en", 68576, "da68426ec94d554424d095881c61aa49fbef7c517ecb9220ac0644e3ed92abaf"},
    {"valid.de", 81087, "2e39d77fb761da8535ebacb3efec8804f8534124423fd82b321777611de70c52"},
    {"test.en", 101712, "6dbf3e57404a85ff266c6c37faa62e5246723237d2b1c3db79b2576c2974f49a"},
    {"test.de", 120299, "10661048a7a262005b6852d8f4bbabca33ffb9f5c240d7e908422e801f09670f"},
}};

constexpr std::array<CatalogueFile, 9> kBibleFiles{{
    {"train.en", 3743874, "52c2a65f54ffd17e44ab88fc2047014fef2e9eb701d9fca90acf0f7225d40be3"},
    {"train.es", 3667394, "5ec45afbfcd829331e5e9b4fc4a656c9293bbea47845d466baac1e2415ca163f"},
    {"train.ref", 284665, "91c02d62cab61f4906532f3118d00ecd12c1bbb1adb7037a845f333f9e420b8c"},
    {"valid.en", 85342, "6878090932e4532a8bd8844d5e4e8cc895863f3bf62aa43a5acd3410aaf0845d"},
    {"valid.es", 81701, "5b4d171abbab0e2810b83728bb568cc92e46834a1e945a448686ed088c5cfe5b"},
    {"valid.ref", 6603, "0794cb9525366ecbc7a1590dbcb4f5b3046798191fc7b70b15c664dbf67994b2"},
    {"test.en", 149440, "cced32e38e99d4041d0dbb66fcbaa56072a3dc4207ecdc847190a95760005e5f"},
    {"test.es", 146047, "c1af9f6fb4fa57ead4a69c83d1a2375ac9d1d4ab1ca38d15ff3d6bf02af57f03"},
    {"test.ref", 11181, "ca72aab40b35056f57caa7e99d822819b4c96fcd6d017522c095b050788d2968"},
}};

constexpr std::array<CatalogueFile, 6> kWmt14Files{
    {{"train.en"}, {"train.de"}, {"valid.en"}, {"valid.de"}, {"test.en"}, {"test.de"}}};

constexpr std::array<CatalogueFile, 6> kAn4Files{{{"etc/an4.dic"},
                                                  {"etc/an4_train.fileids"},
                                                  {"etc/an4_train.transcription"},
                                                  {"etc/an4_test.fileids"},
                                                  {"etc/an4_test.transcription"},
                                                  {"feat"}}};
constexpr std::array<CatalogueFile, 1> kSpokenDigitsFiles{{{"recordings"}}};
constexpr std::array<CatalogueFile, 3> kSyntheticSpeechFiles{{{"train"}, {"valid"}, {"test"}}};
constexpr std::array<CatalogueFile, 1> kCmudictFiles{{{"cmudict.dict"}}};

constexpr std::string_view kCopyCorpus = "copy the corpus into such a folder";

constexpr std::array<CatalogueEntry, 15> kSets{{
    {.name = "mnist",
     .type = DatasetType::images,
     .title = "handwritten digits, 28 x 28 grey, 60,000 train and 10,000 test",
     .height = 28,
     .width = 28,
     .channels = 1,
     .classes = 10,
     .files = kMnistFiles,
     .download_instructions =
         "download the four .gz files from https://ossci-datasets.s3.amazonaws.com/mnist/ into such a folder",
     .url = "https://ossci-datasets.s3.amazonaws.com/mnist"},
    {.name = "fashion-mnist",
     .type = DatasetType::images,
     .title = "articles of clothing, 28 x 28 grey, 60,000 train and 10,000 test",
     .height = 28,
     .width = 28,
     .channels = 1,
     .classes = 10,
     .files = kFashionMnistFiles,
     .system_folder = "/usr/share/datasets/fashion-mnist",
     .download_instructions =
         "sudo apt-get install dataset-fashion-mnist (Debian and Ubuntu), or download the four .gz files "
         "from "
         "https://github.com/zalandoresearch/fashion-mnist/tree/master/data/fashion into such a folder",
     .url = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"},
    {.name = "cifar10",
     .type = DatasetType::images,
     .title = "photographs, 32 x 32 colour, 50,000 train and 10,000 test",
     .height = 32,
     .width = 32,
     .channels = 3,
     .classes = 10,
     .files = kCifar10Files,
     .download_instructions =
         "in such a folder, run: curl -L https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz | tar xz "
         "--strip-components=1",
     .url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"},
    {.name = "enwik8",
     .type = DatasetType::text,
     .title = "the first 100,000,000 bytes of the English Wikipedia of 2006, as XML",
     .files = kEnwik8Files,
     .download_instructions =
         "download https://mattmahoney.net/dc/enwik8.zip and unpack it into such a folder",
     .url = "https://mattmahoney.net/dc/enwik8.zip"},
    {.name = "text8",
     .type = DatasetType::text,
     .title = "100,000,000 letters and spaces of the English Wikipedia of 2006",
     .files = kText8Files,
     .download_instructions =
         "download https://mattmahoney.net/dc/text8.zip and unpack it into such a folder",
     .url = "https://mattmahoney.net/dc/text8.zip"},
    {.name = "tatoeba-de-en",
     .type = DatasetType::translation,
     .title =
         "short sentences of Tatoeba in English and German, 162,993 train, 2,000 valid and 3,000 test pairs",
     .languages = {"en", "de"},
     .files = kTatoebaFiles,
     .download_instructions = "it has no public source; its sentences are a selection of deu-eng.zip of "
                              "https://www.manythings.org/anki/; other files train, valid and test with the "
                              "endings .en and .de, one "
                              "sentence a line, can be used"},
    {.name = "bible-en-es",
     .type = DatasetType::translation,
     .title = "verses of the Bible in English and Spanish, 28,904 train, 684 valid and 1,130 test pairs",
     .languages = {"en", "es"},
     .files = kBibleFiles,
     .download_instructions = "it has no public source; its verses are those of https://ebible.org/web and "
                              "https://ebible.org/spaRV1909; other files train, valid and test with the "
                              "endings .en, .es and .ref (for "
                              "example \"Gen 41:1\"), one verse a line, can be used"},
    {.name = "wmt14-en-de",
     .type = DatasetType::translation,
     .title =
         "WMT'14, parliament, web and news in English and German, 4.5 million train and 3,003 test pairs",
     .languages = {"en", "de"},
     .files = kWmt14Files,
     .download_instructions =
         "write the parallel text of https://www.statmt.org/wmt14/translation-task.html to the files train, "
         "valid (newstest2013) and test (newstest2014) with the endings .en and .de, one sentence a line",
     .url = "https://www.statmt.org"},
    {.name = "an4",
     .type = DatasetType::speech,
     .format = CorpusFormat::an4,
     .title = "CMU AN4, spelled words, features of 948 train and 130 test utterances",
     .files = kAn4Files,
     .download_instructions = "unpack the features of CMU AN4 (etc/ and feat/) into such a folder"},
    {.name = "fsdd",
     .type = DatasetType::speech,
     .format = CorpusFormat::spoken_digits,
     .title = "Free Spoken Digits, recordings at 8 kHz, 2,700 train and 300 test",
     .sample_rate = 8000,
     .label_kind = SpeechLabelKind::words,
     .files = kSpokenDigitsFiles,
     .download_instructions =
         "clone https://github.com/Jakobovski/free-spoken-digit-dataset into such a folder"},
    {.name = "kaldi",
     .type = DatasetType::speech,
     .format = CorpusFormat::kaldi,
     .sample_rate = 16000,
     .label_kind = SpeechLabelKind::phones_or_words,
     .train_part = "train",
     .valid_part = "valid",
     .test_part = "test",
     .needs_path = true,
     .download_instructions = kCopyCorpus},
    {.name = "timit",
     .type = DatasetType::speech,
     .format = CorpusFormat::timit,
     .sample_rate = 16000,
     .needs_path = true,
     .download_instructions = kCopyCorpus},
    {.name = "librispeech",
     .type = DatasetType::speech,
     .format = CorpusFormat::librispeech,
     .sample_rate = 16000,
     .label_kind = SpeechLabelKind::words,
     .train_part = "train-clean-100",
     .valid_part = "dev-clean",
     .test_part = "test-clean",
     .download_instructions = kCopyCorpus},
    {.name = "synthetic-speech",
     .type = DatasetType::speech,
     .format = CorpusFormat::kaldi,
     .title = "sentences of a small grammar, spoken by espeak-ng",
     .sample_rate = 16000,
     .train_part = "train",
     .valid_part = "valid",
     .test_part = "test",
     .files = kSyntheticSpeechFiles,
     .download_instructions = "generate it with espeak-ng"},
    {.name = "cmudict",
     .type = DatasetType::lexicon,
     .format = CorpusFormat::cmudict,
     .title = "CMUdict, the phones of English words",
     .files = kCmudictFiles,
     .download_instructions = "download https://github.com/cmusphinx/cmudict into such a folder"},
}};

}  // namespace

std::span<const CatalogueEntry> list_catalogue_entries() {
  return kSets;
}

std::vector<std::string> list_dataset_names(const CatalogueFilter& filter) {
  std::vector<std::string> names;
  for (const CatalogueEntry& set : kSets)
    if (!filter || filter(set)) names.emplace_back(set.name);
  return names;
}

const CatalogueEntry* find_catalogue_entry(const std::string& name) {
  const auto found =
      std::find_if(kSets.begin(), kSets.end(), [&](const CatalogueEntry& set) { return set.name == name; });
  return found == kSets.end() ? nullptr : &*found;
}

const CatalogueEntry& require_catalogue_entry(const std::string& name, const CatalogueFilter& filter,
                                              const std::string& description) {
  const CatalogueEntry* const set = find_catalogue_entry(name);
  if (!set || (filter && !filter(*set)))
    throw ConfigError(describe_unknown_name(name, description, list_dataset_names(filter)));
  return *set;
}

std::string describe_unknown_name(const std::string& name, const std::string& description,
                                  const std::vector<std::string>& names) {
  const std::string nearest = find_nearest_name(name, names);
  std::string text = "\"" + name + "\" is not " + description;
  if (!nearest.empty()) return text + "; did you mean \"" + nearest + "\"?";
  for (size_t i = 0; i < names.size(); ++i) text += (i ? ", " : "; there are ") + names[i];
  return text;
}

}  // namespace tapeformer
