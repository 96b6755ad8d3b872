// The parallel text of WMT'14 for English and German.
#pragma once

#include <filesystem>
#include <string>

namespace tapeformer {

// Writes the missing files train.LANG, valid.LANG and test.LANG for LANG = en and de to a folder. The
// training files are Europarl v7, Common Crawl and News Commentary v9, the validation files are newstest2013,
// and the test files are newstest2014. `from` is the path or URL of a folder with the five archives; if it is
// empty, the archives are downloaded from www.statmt.org. The text is not changed: as in sacreBLEU, segments
// of SGML files keep their entities.
//
// Throws DataError if an archive is missing or damaged, lacks a file, or has files of different numbers of
// lines. Throws FileError if files cannot be written.
void fetch_wmt14(const std::filesystem::path& folder, const std::string& from);

}  // namespace tapeformer
