// The file table.json of a reproduction contains a JSON object with these keys:
//
//   table, title, source, notes, reference, scale, command, settings, device, version, commit, machine,
//   threads, date
//   columns  [{name, label, digits, printed}]
//   rows     [{name, config, settings, line, command, seconds, trainings, cells}]
//            seconds: the longest time of a seed, for the training and the measurements
//            trainings: [{seed, run, steps, seconds, …}]
//            cells: {COLUMN: {status, values: [{seed, value}], mean, spread, text, paper, command, config,
//            commit, machine, threads, date, error}}
//            status: "measured", "failed" or "not run"
//            spread: the sample standard deviation, or null if there are fewer than two values
//            text: the result, if the result is a text and not a number
//   figures  [{name, title, x, y, area_label, series: [{name, points, errors, area}]}]
//            points: [[x, y]], where x and y are the means over the seeds
//            errors: the sample standard deviation of y at each point, or 0 for one seed
//            area_label, area: only in figures with circles
//   pictures [PNG file]
//   printed  {header, rows}: the table as text
#pragma once

#include <nlohmann/json.hpp>

#include "train/reproduce/store.h"

namespace tapeformer {

// Returns the table with all results in the store, including results of earlier calls.
Json make_table_json(const Table& table, const ReproductionOptions& options, const ResultStore& store);

}  // namespace tapeformer
