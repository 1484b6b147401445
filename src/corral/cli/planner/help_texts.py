"""Help texts of planner commands that read tables or price lists."""

from typing import Final

PRICES: Final = """List the prices of GPUs, by the hour and to buy.

Your own price list for --prices FILE is a CSV file with one price per line:

    subject,quantity,value,unit,source,date
    aws:h100-sxm,on_demand,3.10,USD a GPU-hour,our contract,2026-10-01
    buy:h100-sxm,server,290000,USD,an offer for a node of 8,2026-10-01

Quantities of CLOUD:GPU, which is rented: on_demand, reserved_1y, reserved_3y
or spot.
Quantities of buy:GPU, which is sold: gpu, server (with all of its GPUs) or
used_gpu.
Prices that the list does not contain come from the catalog. --csv prints the
catalog's list, which you can change.
"""

PREDICT: Final = """Predict each row of a table.

The table is a CSV file with a header. Each kind requires these columns:

    training: model, gpu, n_gpus, seq_len
    memory_ci: family, gpu, layers, hidden, heads, seq_len, micro_batch, global_batch
    inference: model, gpu, n_gpus, batch_or_concurrency, input_len, output_len
    collectives: collective, gpu, n_gpus, size_bytes

Other columns are used if they exist: layers, dp, tp, pp, precision, engine,
interconnect, ... The result adds the predicted columns (pred_...), the column
`assumed` with the assumptions for empty cells, and the column `refused` with
the reason if a row cannot be predicted.
"""

CAPACITY: Final = """Compute how many GPUs will be needed.

The input is planned runs (--run-hours, --runs, --run-gpus) or a history
(--history or --own). From a history, the command forecasts the demand. With
--wait, it also computes the smallest number of GPUs with which the share
--share of the jobs waits no longer than --wait.
"""

VALIDATE: Final = """Compare predictions with measurements.

The table is as in plan predict, with at least one of these columns of measured
values:

    training: step_time_s, tokens_per_s_per_gpu, memory_gb_per_gpu
    memory_ci: mem_max_allocated_gb, iter_time_s_median
    inference: output_tokens_per_s_total, ttft_ms, tpot_ms, latency_ms
    collectives: time_us
"""
