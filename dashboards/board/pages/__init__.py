"""The pages of the board, one module a page. Nothing but `dashboards.board.site` and each other imports them."""
