// PD Controller: the ten steps of figure 8. Four parts work at the same time: fetching entries (1 to 4), reading their
// payloads (5, 6), writing them (7, 8), completing (9, 10 and the interrupt). A slot belongs to an entry from its
// dispatch until its completion has been handed on.
module pd_controller #(
  parameter QUEUES = 16,
  parameter DEPTH  = 1024,
  parameter SLOTS  = 32,
  parameter ROWS   = 32,
  localparam QW = $clog2(QUEUES),
  localparam PW = $clog2(DEPTH) + 1,
  localparam SW = $clog2(SLOTS),
  localparam RW = $clog2(ROWS)
) (
  input  logic          clk,
  input  logic          reset,
  input  logic          ready,  // the state registers are
  output logic          fault,  // a command queue cannot be read or written: no further entry is fetched
  // State registers and pointer calculator.
  output logic [QW-1:0] look_queue,
  input  logic [PW-1:0] look_sq_head,
  input  logic [PW-1:0] look_sq_tail,
  input  logic [PW-1:0] look_cq_head,
  output logic          look_enable,  // the calculator's answer of this cycle is kept
  output logic          fetched_valid,
  output logic [PW-1:0] fetched_head,
  input  logic [63:0]   sq_address,
  input  logic [4:0]    sq_count,
  output logic [QW-1:0] complete_queue,
  output logic          complete_valid,
  input  logic [63:0]   cq_address,
  // Entries: requests, and what has come.
  output logic          entry_cmd_valid,
  input  logic          entry_cmd_ready,
  output logic [63:0]   entry_cmd_address,
  output logic [4:0]    entry_cmd_count,
  output logic [RW-1:0] entry_cmd_row,
  input  logic          entry_valid,
  input  logic [RW-1:0] entry_row,
  input  logic [QW-1:0] entry_queue,
  input  logic [1:0]    entry_halves,
  input  logic [511:0]  entry_data,
  input  logic          entry_fault,
  // Payload that is read.
  output logic          read_cmd_valid,
  input  logic          read_cmd_ready,
  output logic [SW-1:0] read_cmd_slot,
  output logic [63:0]   read_cmd_address,
  output logic [12:0]   read_cmd_length,
  output logic [5:0]    read_cmd_alignment,
  input  logic          read_done_valid,
  input  logic [SW-1:0] read_done_slot,
  input  logic          read_done_failed,
  // Payload that is written.
  output logic          write_cmd_valid,
  input  logic          write_cmd_ready,
  output logic [SW-1:0] write_cmd_slot,
  output logic [63:0]   write_cmd_address,
  output logic [12:0]   write_cmd_length,
  input  logic          write_done_valid,
  input  logic [SW-1:0] write_done_slot,
  input  logic          write_done_failed,
  // Completions.
  output logic          completion_cmd_valid,
  input  logic          completion_cmd_ready,
  output logic [QW-1:0] completion_cmd_queue,
  output logic [63:0]   completion_cmd_address,
  output logic [255:0]  completion_cmd_entry,
  input  logic          completed_valid,
  input  logic [QW-1:0] completed_queue,
  input  logic          completed_fault,
  output logic          msi_valid,
  input  logic          msi_ready,
  output logic [QW-1:0] msi_queue
);
  // As in pipe/protocol/entry.h.
  localparam [7:0] SEND = 8'd1, COMPLETED = 8'd3, FAILED = 8'd4;

  // --- Steps 2 to 4: one queue after the other is looked at ---

  localparam [1:0] LOOK = 2'd0, CALCULATE = 2'd1, FETCH = 2'd2;
  logic [1:0] fetch_state;
  logic [RW:0] free_rows;
  logic [3:0] rows;

  assign rows              = 4'(({4'b0, sq_address[5]} + sq_count + 5'd1) >> 1);
  assign look_enable       = fetch_state == CALCULATE;
  assign entry_cmd_valid   = fetch_state == FETCH;
  assign entry_cmd_address = sq_address;
  assign entry_cmd_count   = sq_count;
  assign fetched_valid     = entry_cmd_valid && entry_cmd_ready;
  assign fetched_head      = look_sq_head + {{PW-5{1'b0}}, sq_count};

  always_ff @(posedge clk) begin
    if (reset || !ready) begin
      fetch_state <= LOOK;
      look_queue  <= '0;
      fault       <= 1'b0;
    end else begin
      if (entry_fault || completed_fault) fault <= 1'b1;
      case (fetch_state)
        LOOK: begin
          if (look_sq_head == look_sq_tail || look_sq_head - look_cq_head == {1'b1, {PW-1{1'b0}}} || fault)
            look_queue <= look_queue + 1'b1;
          else if (free_rows >= 8) fetch_state <= CALCULATE;
        end
        CALCULATE: fetch_state <= FETCH;
        default: begin
          if (entry_cmd_ready) begin
            fetch_state <= LOOK;
            look_queue  <= look_queue + 1'b1;
          end
        end
      endcase
    end
  end

  logic next_valid, next_ready;
  logic [255:0] next_entry;
  logic [QW-1:0] next_queue;

  pd_entry_buffer #(.QUEUES(QUEUES), .ROWS(ROWS)) entries (
    .clk, .reset, .free_rows, .next_row(entry_cmd_row),
    .reserve_valid(fetched_valid), .reserve_rows(rows),
    .write_valid(entry_valid), .write_row(entry_row), .write_queue(entry_queue),
    .write_halves(entry_halves), .write_data(entry_data),
    .valid(next_valid), .ready(next_ready), .entry(next_entry), .queue(next_queue));

  // --- Step 5: an entry gets a slot, and its payload is asked for ---

  logic [SLOTS-1:0] slot_busy;
  logic [SW-1:0] candidate;
  logic held, held_legal, dispatch, freed_valid;
  logic [SW-1:0] held_slot, freed_slot;
  logic [63:0] source, destination;
  logic [15:0] length;
  logic skip;

  assign source      = next_entry[71:8];
  assign destination = next_entry[135:72];
  assign length      = next_entry[151:136];  // 0 is 65,536
  assign dispatch    = next_valid && !slot_busy[candidate] && !held;
  assign next_ready  = dispatch;

  assign read_cmd_valid = held && held_legal;
  assign read_cmd_slot  = held_slot;
  assign skip           = held && !held_legal && !read_done_valid;  // to the list of those that are read

  logic [255+QW:0] slots[SLOTS-1:0];
  logic [76:0] targets[SLOTS-1:0];

  always_ff @(posedge clk) begin
    if (dispatch) begin
      held_slot          <= candidate;
      held_legal         <= next_entry[7:0] == SEND && length != 16'd0 && length <= 16'd4096;
      read_cmd_address   <= source;
      read_cmd_length    <= length[12:0];
      read_cmd_alignment <= destination[5:0];
      slots[candidate]   <= {next_queue, next_entry};
      targets[candidate] <= {destination, length[12:0]};
    end
    if (reset) begin
      held      <= 1'b0;
      candidate <= '0;
      slot_busy <= '0;
    end else begin
      held <= dispatch || (held && !skip && !(read_cmd_valid && read_cmd_ready));
      if (dispatch || slot_busy[candidate]) candidate <= candidate + 1'b1;
      if (dispatch) slot_busy[candidate] <= 1'b1;
      if (freed_valid) slot_busy[freed_slot] <= 1'b0;
    end
  end

  // --- Steps 6 and 7: what is read is written ---

  logic read_valid, read_failed, read_pop, target_valid, target_failed, target_done;
  logic [SW-1:0] read_slot;

  pd_fifo #(.WIDTH(SW + 1), .DEPTH(SLOTS)) reads (
    .clk, .reset, .push(read_done_valid || skip),
    .push_data(read_done_valid ? {read_done_failed, read_done_slot} : {1'b1, held_slot}),
    .valid(read_valid), .data({read_failed, read_slot}), .pop(read_pop));

  assign read_pop        = read_valid && (!target_valid || target_done);
  assign write_cmd_valid = target_valid && !target_failed;
  assign target_done     = target_failed ? !write_done_valid : write_cmd_ready;

  always_ff @(posedge clk) begin
    if (read_pop) begin
      target_failed  <= read_failed;
      write_cmd_slot <= read_slot;
      {write_cmd_address, write_cmd_length} <= targets[read_slot];
    end
    if (reset) target_valid <= 1'b0;
    else target_valid <= read_pop || (target_valid && !target_done);
  end

  // --- Steps 8 and 9: what is written is completed ---

  logic written_valid, written_failed, written_pop;
  logic [SW-1:0] written_slot;
  logic target_skips;

  assign target_skips = target_valid && target_failed && !write_done_valid;

  pd_fifo #(.WIDTH(SW + 1), .DEPTH(SLOTS)) writes (
    .clk, .reset, .push(write_done_valid || target_skips),
    .push_data(write_done_valid ? {write_done_failed, write_done_slot} : {1'b1, write_cmd_slot}),
    .valid(written_valid), .data({written_failed, written_slot}), .pop(written_pop));

  localparam [1:0] WAIT = 2'd0, ADDRESS = 2'd1, COMPLETE = 2'd2;
  logic [1:0] complete_state;
  logic [255:8] done_entry;  // all but its type
  logic done_failed;

  assign written_pop            = complete_state == WAIT && written_valid;
  assign completion_cmd_valid   = complete_state == COMPLETE;
  assign completion_cmd_queue   = complete_queue;
  assign completion_cmd_address = cq_address;
  assign completion_cmd_entry   = {done_entry, done_failed ? FAILED : COMPLETED};
  assign complete_valid         = completion_cmd_valid && completion_cmd_ready;
  assign freed_valid            = complete_valid;

  always_ff @(posedge clk) begin
    if (written_pop) begin
      {complete_queue, done_entry} <= slots[written_slot][255+QW:8];
      freed_slot  <= written_slot;
      done_failed <= written_failed;
    end
    if (reset) complete_state <= WAIT;
    else
      case (complete_state)
        WAIT: if (written_valid) complete_state <= ADDRESS;
        ADDRESS: complete_state <= COMPLETE;
        default: if (completion_cmd_ready) complete_state <= WAIT;
      endcase
  end

  // --- Step 10 is done: the interrupt. One tells of all completions of a queue until then ---

  logic [QUEUES-1:0] to_tell;
  logic [QW-1:0] tell_queue;

  always_ff @(posedge clk) begin
    if (reset) begin
      to_tell    <= '0;
      tell_queue <= '0;
      msi_valid  <= 1'b0;
    end else begin
      if (!msi_valid || msi_ready) begin
        msi_valid <= to_tell[tell_queue];
        msi_queue <= tell_queue;
        to_tell[tell_queue] <= 1'b0;
        tell_queue <= tell_queue + 1'b1;
      end
      if (completed_valid) to_tell[completed_queue] <= 1'b1;
    end
  end

`ifndef SYNTHESIS
  a_slot_in_use: assert property (@(posedge clk) disable iff (reset) freed_valid |-> slot_busy[freed_slot]);
  a_read_in_use: assert property (@(posedge clk) disable iff (reset) read_done_valid |-> slot_busy[read_done_slot]);
  a_written_in_use: assert property (@(posedge clk) disable iff (reset)
    write_done_valid |-> slot_busy[write_done_slot]);
  pd_stream_check #(.WIDTH(69 + RW)) check_entry_cmd (.clk, .reset, .valid(entry_cmd_valid), .ready(entry_cmd_ready),
    .payload({entry_cmd_address, entry_cmd_count, entry_cmd_row}));
  pd_stream_check #(.WIDTH(83 + SW)) check_read_cmd (.clk, .reset, .valid(read_cmd_valid), .ready(read_cmd_ready),
    .payload({read_cmd_slot, read_cmd_address, read_cmd_length, read_cmd_alignment}));
  pd_stream_check #(.WIDTH(77 + SW)) check_write_cmd (.clk, .reset, .valid(write_cmd_valid), .ready(write_cmd_ready),
    .payload({write_cmd_slot, write_cmd_address, write_cmd_length}));
  pd_stream_check #(.WIDTH(320 + QW)) check_completion_cmd (.clk, .reset,
    .valid(completion_cmd_valid), .ready(completion_cmd_ready),
    .payload({completion_cmd_queue, completion_cmd_address, completion_cmd_entry}));
`endif
endmodule
