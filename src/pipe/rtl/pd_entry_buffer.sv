// Entries that are fetched, two in a row as a beat brings them. Rows are reserved in order, written when they come, and
// given out in order: a queue stays first in, first out whatever the order of DMA completions is.
module pd_entry_buffer #(
  parameter QUEUES = 16,
  parameter ROWS   = 32,
  localparam QW = $clog2(QUEUES),
  localparam RW = $clog2(ROWS)
) (
  input  logic          clk,
  input  logic          reset,
  output logic [RW:0]   free_rows,
  output logic [RW-1:0] next_row,
  input  logic          reserve_valid,
  input  logic [3:0]    reserve_rows,
  input  logic          write_valid,
  input  logic [RW-1:0] write_row,
  input  logic [QW-1:0] write_queue,
  input  logic [1:0]    write_halves,  // which of both entries are there
  input  logic [511:0]  write_data,
  output logic          valid,
  input  logic          ready,
  output logic [255:0]  entry,
  output logic [QW-1:0] queue
);
  logic [511+2+QW:0] memory[ROWS-1:0];
  logic [ROWS-1:0] present;
  logic [RW:0] head, tail;

  // The row that is given out. Each half is shown once.
  logic [511+2+QW:0] row;
  logic row_valid, upper, done_with_row, load;

  assign free_rows = {1'b1, {RW{1'b0}}} - (tail - head);
  assign next_row = tail[RW-1:0];
  assign queue = row[514+:QW];
  assign valid = row_valid;
  assign entry = upper || !row[512] ? row[511:256] : row[255:0];
  assign done_with_row = valid && ready && (upper || row[513:512] != 2'b11);
  assign load = present[head[RW-1:0]] && (!row_valid || done_with_row);

  always_ff @(posedge clk) begin
    if (write_valid) memory[write_row] <= {write_queue, write_halves, write_data};
    if (load) row <= memory[head[RW-1:0]];
    if (reset) begin
      head      <= '0;
      tail      <= '0;
      present   <= '0;
      row_valid <= 1'b0;
      upper     <= 1'b0;
    end else begin
      if (reserve_valid) tail <= tail + {{RW-3{1'b0}}, reserve_rows};
      if (load) begin
        present[head[RW-1:0]] <= 1'b0;
        head <= head + 1'b1;
      end
      if (write_valid) present[write_row] <= 1'b1;
      row_valid <= load || (row_valid && !done_with_row);
      upper <= valid && ready && !done_with_row ? 1'b1 : upper && !done_with_row;
    end
  end

`ifndef SYNTHESIS
  a_once: assert property (@(posedge clk) disable iff (reset) write_valid |-> !present[write_row]);
  a_some: assert property (@(posedge clk) disable iff (reset) write_valid |-> write_halves != 2'b00);
  a_room: assert property (@(posedge clk) disable iff (reset)
    reserve_valid |-> {{RW-3{1'b0}}, reserve_rows} <= free_rows);
`endif
endmodule
