"""The pages of the board, one module a page. Nothing but `dashboards.board.site` imports them."""
