// DMA Engine, reads: splits what the controller asks for at multiples of 512 bytes, with a tag for each request, and
// takes the data in any order of tags. Payload goes to the data buffer, rotated to its destination's alignment; entries
// go to the entry buffer.
//
// Host memory comes in beats of 64 bytes, aligned. Those of a tag come in order, and the last is marked. A
// beat with an error is the last of its tag and carries nothing.
module pd_dma_read #(
  parameter QUEUES = 16,
  parameter SLOTS  = 32,
  parameter ROWS   = 32,
  parameter TAGS   = 64,
  localparam QW = $clog2(QUEUES),
  localparam SW = $clog2(SLOTS),
  localparam RW = $clog2(ROWS),
  localparam TW = $clog2(TAGS),
  localparam OW = QW > SW ? QW : SW  // of the queue or slot that owns a request
) (
  input  logic          clk,
  input  logic          reset,
  // Entries: up to 512 bytes, not beyond a multiple of that.
  input  logic          entry_cmd_valid,
  output logic          entry_cmd_ready,
  input  logic [QW-1:0] entry_cmd_queue,
  input  logic [63:0]   entry_cmd_address,
  input  logic [4:0]    entry_cmd_count,
  input  logic [RW-1:0] entry_cmd_row,
  // Payload: 1 to 4,096 bytes.
  input  logic          payload_cmd_valid,
  output logic          payload_cmd_ready,
  input  logic [SW-1:0] payload_cmd_slot,
  input  logic [63:0]   payload_cmd_address,
  input  logic [12:0]   payload_cmd_length,
  input  logic [5:0]    payload_cmd_alignment,  // of the destination
  // The host.
  output logic          request_valid,
  input  logic          request_ready,
  output logic [63:0]   request_address,
  output logic [9:0]    request_length,
  output logic [TW-1:0] request_tag,
  input  logic          data_valid,
  output logic          data_ready,
  input  logic [TW-1:0] data_tag,
  input  logic [511:0]  data_beat,
  input  logic          data_last,
  input  logic          data_error,
  // The entry buffer.
  output logic          entry_valid,
  output logic [RW-1:0] entry_row,
  output logic [QW-1:0] entry_queue,
  output logic [1:0]    entry_halves,
  output logic [511:0]  entry_data,
  output logic          entry_fault,
  // The data buffer.
  output logic          write_valid,
  output logic [SW-1:0] write_slot,
  output logic [5:0]    write_row,
  output logic [5:0]    write_rotation,
  output logic [511:0]  write_data,
  output logic [63:0]   write_keep,
  // All of a payload has come, or failed.
  output logic          done_valid,
  output logic [SW-1:0] done_slot,
  output logic          done_failed
);
  // --- Requests ---

  logic active, is_payload;
  logic [OW-1:0] owner;
  logic [63:0] address;
  logic [12:0] left;
  logic [11:0] position;  // of the next byte in the slot's 4 KB, or in the entry buffer

  logic [TAGS-1:0] tag_busy;
  logic [TW-1:0] candidate;
  logic [9:0] to_boundary, length;
  logic issue;

  assign to_boundary = 10'd512 - {1'b0, address[8:0]};
  assign length = left < {3'b0, to_boundary} ? left[9:0] : to_boundary;
  assign issue = active && !tag_busy[candidate] && (!request_valid || request_ready);
  assign entry_cmd_ready = !active;
  assign payload_cmd_ready = !active && !entry_cmd_valid;

  // What belongs to a tag.
  localparam INFO = 1 + OW + 12 + 6 + 10;
  logic [INFO-1:0] tags[TAGS-1:0];

  // Of a payload: requests to come.
  logic [3:0] requests;
  assign requests = 4'(({4'b0, payload_cmd_address[8:0]} + payload_cmd_length + 13'd511) >> 9);

  always_ff @(posedge clk) begin
    if (!active) begin
      is_payload <= !entry_cmd_valid;
      owner      <= entry_cmd_valid ? {{OW-QW{1'b0}}, entry_cmd_queue} : {{OW-SW{1'b0}}, payload_cmd_slot};
      address    <= entry_cmd_valid ? entry_cmd_address : payload_cmd_address;
      left       <= entry_cmd_valid ? {3'b0, entry_cmd_count, 5'b0} : payload_cmd_length;
      position   <= entry_cmd_valid ? {{6-RW{1'b0}}, entry_cmd_row, entry_cmd_address[5:0]}
                                    : {6'b0, payload_cmd_alignment};
    end else if (issue) begin
      address  <= address + {54'b0, length};
      left     <= left - {3'b0, length};
      position <= position + {2'b0, length};
    end
    if (issue) begin
      request_address <= address;
      request_length  <= length;
      request_tag     <= candidate;
      tags[candidate] <= {is_payload, owner, position - {6'b0, address[5:0]}, address[5:0], length};
    end
    if (reset) begin
      active        <= 1'b0;
      request_valid <= 1'b0;
      candidate     <= '0;
    end else begin
      if (!active) active <= entry_cmd_valid || payload_cmd_valid;
      else if (issue && left == {3'b0, length}) active <= 1'b0;
      request_valid <= issue || (request_valid && !request_ready);
      if (issue || tag_busy[candidate]) candidate <= candidate + 1'b1;
    end
  end

  // --- Data: which bytes of the beat are there, and where they go ---

  logic [2:0] beats[TAGS-1:0];  // of a tag that have come
  logic [INFO-1:0] info;
  logic [2:0] beat;
  logic [9:0] end_of_tag, remaining;
  logic ends;
  logic accepted;

  assign data_ready = 1'b1;  // whoever asked has kept room
  assign accepted = data_valid && data_ready;
  assign info = tags[data_tag];
  assign beat = beats[data_tag];
  assign end_of_tag = {4'b0, info[15:10]} + info[9:0];
  assign remaining = end_of_tag - {1'b0, beat, 6'b0};
  assign ends = data_last || data_error;

  logic beat_valid, beat_is_payload, beat_error, beat_ends;
  logic [OW-1:0] beat_owner;
  logic [11:0] beat_position;
  logic [5:0] beat_first;
  logic [6:0] beat_end;
  logic [511:0] beat_data;

  always_ff @(posedge clk) begin
    {beat_is_payload, beat_owner} <= info[INFO-1:28];
    beat_position <= info[27:16] + {3'b0, beat, 6'b0};
    beat_first    <= beat == 3'd0 ? info[15:10] : 6'd0;
    beat_end      <= remaining < 10'd64 ? remaining[6:0] : 7'd64;
    beat_data     <= data_beat;
    beat_error    <= data_error;
    beat_ends     <= ends;
    if (reset) begin
      beat_valid <= 1'b0;
      tag_busy   <= '0;
      for (int tag = 0; tag < TAGS; tag++) beats[tag] <= '0;
    end else begin
      beat_valid <= accepted;
      if (accepted) beats[data_tag] <= ends ? 3'd0 : beat + 1'b1;
      if (issue) tag_busy[candidate] <= 1'b1;
      if (accepted && ends) tag_busy[data_tag] <= 1'b0;
    end
  end

  // --- Entries ---

  assign entry_valid  = beat_valid && !beat_is_payload && !beat_error;
  assign entry_fault  = beat_valid && !beat_is_payload && beat_error;
  assign entry_row    = beat_position[6+:RW];
  assign entry_queue  = beat_owner[QW-1:0];
  assign entry_halves = {beat_end == 7'd64, beat_first == 6'd0};
  assign entry_data   = beat_data;

  // --- Payload: two cycles in the rotator, and what goes along with it ---

  logic [63:0] beat_keep;
  assign beat_keep = ({64{1'b1}} << beat_first) & ~({64{1'b1}} << beat_end);

  pd_rotator rotator (
    .clk, .amount(beat_position[5:0]), .data(beat_data), .keep(beat_keep),
    .rotated_data(write_data), .rotated_keep(write_keep));

  logic coarse_valid, coarse_error, coarse_ends, fine_valid, fine_error, fine_ends;
  logic [SW-1:0] coarse_slot, fine_slot;
  logic [11:0] coarse_position, fine_position;

  always_ff @(posedge clk) begin
    coarse_error    <= beat_error;
    coarse_ends     <= beat_ends;
    coarse_slot     <= beat_owner[SW-1:0];
    coarse_position <= beat_position;
    fine_error      <= coarse_error;
    fine_ends       <= coarse_ends;
    fine_slot       <= coarse_slot;
    fine_position   <= coarse_position;
    coarse_valid    <= !reset && beat_valid && beat_is_payload;
    fine_valid      <= !reset && coarse_valid;
  end

  assign write_valid    = fine_valid && !fine_error;
  assign write_slot     = fine_slot;
  assign write_row      = fine_position[11:6];
  assign write_rotation = fine_position[5:0];

  // --- How many requests of a slot are to come ---

  logic [3:0] to_come[SLOTS-1:0];
  logic [3:0] fine_to_come;
  logic [SLOTS-1:0] failed;

  assign fine_to_come = to_come[fine_slot];

  always_ff @(posedge clk) begin
    if (payload_cmd_valid && payload_cmd_ready) begin
      to_come[payload_cmd_slot] <= requests;
      failed[payload_cmd_slot]  <= 1'b0;
    end
    if (fine_valid && fine_ends) to_come[fine_slot] <= fine_to_come - 1'b1;
    if (fine_valid && fine_error) failed[fine_slot] <= 1'b1;
    done_valid  <= !reset && fine_valid && fine_ends && fine_to_come == 4'd1;
    done_slot   <= fine_slot;
    done_failed <= failed[fine_slot] || fine_error;
  end

`ifndef SYNTHESIS
  a_asked_for: assert property (@(posedge clk) disable iff (reset) data_valid |-> tag_busy[data_tag]);
  a_last: assert property (@(posedge clk) disable iff (reset)
    data_valid && !data_error |-> data_last == (remaining <= 10'd64));
  a_no_crossing: assert property (@(posedge clk) disable iff (reset)
    request_valid |-> {1'b0, request_address[8:0]} + request_length <= 10'd512);
  a_expected: assert property (@(posedge clk) disable iff (reset)
    fine_valid && fine_ends |-> fine_to_come != 4'd0);
`endif
endmodule
