// DMA Engine, writes: payload out of the data buffer, and completions, in beats of 64 aligned bytes with an enable bit
// for each byte. A request ends (`last`) at each multiple of 256 bytes, the largest payload of a packet; the host
// answers each, in any order.
module pd_dma_write #(
  parameter QUEUES = 16,
  parameter SLOTS  = 32,
  localparam QW = $clog2(QUEUES),
  localparam SW = $clog2(SLOTS),
  localparam OW = QW > SW ? QW : SW
) (
  input  logic          clk,
  input  logic          reset,
  input  logic          payload_cmd_valid,
  output logic          payload_cmd_ready,
  input  logic [SW-1:0] payload_cmd_slot,
  input  logic [63:0]   payload_cmd_address,
  input  logic [12:0]   payload_cmd_length,
  input  logic          completion_cmd_valid,
  output logic          completion_cmd_ready,
  input  logic [QW-1:0] completion_cmd_queue,
  input  logic [63:0]   completion_cmd_address,
  input  logic [255:0]  completion_cmd_entry,
  // The data buffer.
  output logic          read_enable,
  output logic [SW-1:0] read_slot,
  output logic [5:0]    read_row,
  input  logic [511:0]  read_data,
  // The host. The tag is the owner: a slot, or a queue if the uppermost bit is set.
  output logic          request_valid,
  input  logic          request_ready,
  output logic [63:0]   request_address,
  output logic [511:0]  request_data,
  output logic [63:0]   request_keep,
  output logic          request_last,
  output logic [OW:0]   request_tag,
  input  logic          response_valid,
  output logic          response_ready,
  input  logic [OW:0]   response_tag,
  input  logic          response_error,
  // All of a payload is written, or failed.
  output logic          done_valid,
  output logic [SW-1:0] done_slot,
  output logic          done_failed,
  // A completion is written.
  output logic          completed_valid,
  output logic [QW-1:0] completed_queue,
  output logic          completed_fault
);
  logic active, is_completion, advance;
  logic [OW-1:0] owner;
  logic [63:0] address;
  logic [12:0] left;
  logic [5:0] row;
  logic [255:0] entry, shown_entry;
  logic shows_entry;

  // One beat: up to the next multiple of 64.
  logic [6:0] to_boundary, length;
  logic [6:0] end_lane;
  logic final_beat;

  assign to_boundary = 7'd64 - {1'b0, address[5:0]};
  assign length      = left < {6'b0, to_boundary} ? left[6:0] : to_boundary;
  assign end_lane    = {1'b0, address[5:0]} + length;
  assign final_beat  = left == {6'b0, length};
  assign advance     = !request_valid || request_ready;

  assign completion_cmd_ready = !active;
  assign payload_cmd_ready    = !active && !completion_cmd_valid;
  assign read_enable          = active && advance;
  assign read_slot            = owner[SW-1:0];
  assign read_row             = row;
  assign request_data         = shows_entry ? {2{shown_entry}} : read_data;

  always_ff @(posedge clk) begin
    if (!active) begin
      is_completion <= completion_cmd_valid;
      owner   <= completion_cmd_valid ? {{OW-QW{1'b0}}, completion_cmd_queue} : {{OW-SW{1'b0}}, payload_cmd_slot};
      address <= completion_cmd_valid ? completion_cmd_address : payload_cmd_address;
      left    <= completion_cmd_valid ? 13'd32 : payload_cmd_length;
      row     <= '0;
      entry   <= completion_cmd_entry;
    end else if (advance) begin
      address <= address + {57'b0, length};
      left    <= left - {6'b0, length};
      row     <= row + 1'b1;
    end
    if (active && advance) begin
      request_address <= {address[63:6], 6'b0};
      request_last    <= final_beat || address[7:6] == 2'b11;
      request_tag     <= {is_completion, owner};
      shows_entry     <= is_completion;
      shown_entry     <= entry;
      request_keep    <= ({64{1'b1}} << address[5:0]) & ~({64{1'b1}} << end_lane);
    end
    if (reset) begin
      active        <= 1'b0;
      request_valid <= 1'b0;
    end else begin
      if (!active) active <= completion_cmd_valid || payload_cmd_valid;
      else if (advance && final_beat) active <= 1'b0;
      if (advance) request_valid <= active;
    end
  end

  // --- Answers ---

  logic [4:0] to_come[SLOTS-1:0];
  logic [SLOTS-1:0] failed;
  logic [4:0] requests, answered_to_come;
  logic [SW-1:0] answered;
  logic answered_payload;

  assign requests = 5'(({5'b0, payload_cmd_address[7:0]} + payload_cmd_length + 13'd255) >> 8);
  assign response_ready = 1'b1;
  assign answered = response_tag[SW-1:0];
  assign answered_to_come = to_come[answered];
  assign answered_payload = response_valid && !response_tag[OW];

  always_ff @(posedge clk) begin
    if (payload_cmd_valid && payload_cmd_ready) begin
      to_come[payload_cmd_slot] <= requests;
      failed[payload_cmd_slot]  <= 1'b0;
    end
    if (answered_payload) begin
      to_come[answered] <= answered_to_come - 1'b1;
      if (response_error) failed[answered] <= 1'b1;
    end
    done_valid      <= !reset && answered_payload && answered_to_come == 5'd1;
    done_slot       <= answered;
    done_failed     <= failed[answered] || response_error;
    completed_valid <= !reset && response_valid && response_tag[OW] && !response_error;
    completed_queue <= response_tag[QW-1:0];
    completed_fault <= !reset && response_valid && response_tag[OW] && response_error;
  end

`ifndef SYNTHESIS
  a_expected: assert property (@(posedge clk) disable iff (reset) answered_payload |-> answered_to_come != 5'd0);
  a_some: assert property (@(posedge clk) disable iff (reset) request_valid |-> request_keep != 64'b0);
`endif
endmodule
